package operate

import (
	"strings"
	"testing"
)

const (
	jobID      = "01JD4Z7Q9M2X8W5V3T1R6P0N4K"
	aJob       = `{"job":"` + jobID + `","queue":"out","state":"leased","at_ms":1763629675000,"attempt":1,"tries":3,"published_at_ms":1763629615000,"expires_at_ms":0,"age_ms":61000,"attributes":{"a":"b"},"bytes":7,"data":{"n":1}}`
	mailState  = `{"namespace":"mail","ledger":{"published":100,"acked":60,"expired":3,"deleted":2,"lost":1,"dead":4,"ready":20,"delayed":6,"leased":4,"died":5,"respawned":1},"jobs":34,"max_jobs":40,"queues":2,"oldest_ready_age_ms":61000,"read_at_ms":1763629674000,"rates":{"published":5,"acked":4,"expired":0.5,"lost":0.1,"died":0.2}}`
	mailView   = `{"now_ms":1763629675000,"store":{"mode":"redis","ready":true},"role":"all","namespaces":[],"queues":[` + mailState + `],"workers":{"size":1,"busy":0},"findings":{"headline":"no data is being lost","findings":[]}}`
	mailQueues = `{"now_ms":1763629675000,"read_at_ms":1763629675000,"total":1030,"left_out":6,"queues":[
{"queue":"out","ready":3,"delayed":1,"leased":2,"pending":3,"dead":4,"oldest_ready_age_ms":61000,"acked":5},
{"queue":"big","ready":0,"delayed":null,"leased":null,"pending":90000,"dead":0,"oldest_ready_age_ms":null}]}`
)

func TestJobsCommandsPrintWhatTheServiceSays(t *testing.T) {
	t.Parallel()
	const ns = "GET /api/v1/namespaces/mail"
	lapsed := strings.Replace(aJob, `"leased"`, `"dead","reason":"lapsed"`, 1)
	buried := strings.NewReplacer(`"leased"`, `"dead","reason":"buried"`, `"attempt":1,`, "").Replace(aJob)
	api := newFakeAPI(t, map[string]string{
		"GET /api/v1/pauses":    `{"pauses":[{"namespace":"mail","queue":"out","since_ms":1763629615000,"by":"ada","reason":"drill"},{"namespace":"other","queue":"in","since_ms":1,"by":"bob"}]}`,
		ns + "/queues/out/jobs": `{"jobs":[{"id":"` + jobID + `","state":"leased","attempt":1,"tries":3,"bytes":7,"published_ms":1763629615000,"deadline_ms":1763629675000,"progress":40,"note":"row 4"}],"next":""}`,
		ns + "/partitions":      `{"error":"no_such_route","message":"of kind queue"}`,
		"GET /api/v1/overview":  mailView, ns + "/queues": mailQueues, ns + "/queues/out": `{"queue":"out","ready":3,"delayed":1,"leased":2,"pending":3,"dead":4,"oldest_ready_age_ms":61000,"acked":5,"paused":{"since_ms":1763629615000,"by":"ada","reason":"drill"}}`,
		ns:                               `{"namespace":"mail","kind":"queue","ledger":{"published":100,"acked":60,"kept":7},"residual":0}`,
		ns + "/queues/wrong":             `{"queue":"wrong","ready":0,"pending":0,"dead":0}`,
		ns + "/queues/wrong/jobs":        `{"jobs":[]}`,
		ns + "/queues/over":              `{"queue":"over","ready":0,"pending":1,"dead":2,"acked":3}`,
		ns + "/queues/over/jobs":         `{"jobs":[]}`,
		ns + "/queues/out/peek":          aJob,
		ns + "/queues/out/jobs/" + jobID: aJob,
		ns + "/queues/out/jobs/" + jobID + "-mine":        strings.NewReplacer(`"leased"`, `"ready"`, `"attempt":1,"tries":3`, `"attempt":5,"tries":6`).Replace(aJob),
		ns + "/queues/big/jobs":                           `{"jobs":[{"id":"` + jobID + `","state":"ready","attempt":0,"tries":3,"bytes":7,"published_ms":1763629615000}]}`,
		ns + "/queues/out/jobs/" + jobID + "/trace":       `{"events":[{"at_ms":1763629615000,"event":"published","by":"web"},{"at_ms":1763629616000,"event":"written","attempt":1,"sink":"crm","outcome":"retried","status":503,"ms":30},{"at_ms":1763629616001,"event":"nacked","attempt":1,"by":"push","error":"no\u001b[2J"},{"at_ms":1763629616001,"event":"dead","reason":"nacked"}]}`,
		ns + "/queues/out/jobs/" + strings.ToLower(jobID): lapsed,
		ns + "/queues/out/dead":                           `{"total":7,"jobs":[` + buried + `]}`,
		ns + "/queues/php/dead":                           `{"total":7,"jobs":[]}`,
		ns + "/queues/why/dead":                           `{"total":7,"jobs":[],"looked":7,"complete":true,"causes":[{"cause":"timeout after #","count":7,"first_ms":1763629615000,"last_ms":1763629675000,"example":"timeout after 3s","id":"` + jobID + `"}]}`,
		ns + "/queues/out/forecast":                       `{"now_ms":1763629675000,"step_ms":60000,"due":[0,5,0,2],"scheduled":[1,0,0,3],"scheduled_by":"next"}`,
		ns + "/forecast":                                  `{"now_ms":1763629675000,"step_ms":600000,"due":[0]}`,
	})
	for _, tt := range []struct{ args, want, stderr, asked string }{
		{"jobs ls", "NAMESPACE  PUBLISHED/s", "", ""},
		{"jobs ls", "mail               5.0      4.0       0.8     1     20        6       4     4          1m01s       2", "", ""},
		{"jobs ls mail --sort=age --filter=o", "out        3        1           2     4         1m01s 5", "the other 6", "limit=50&search=o&sort=oldest_ready_age"},
		{"jobs ls mail", "big        0        ?  ? of 90000     0             - -", "1028 more", ""},
		{"jobs ls mail", "", "queue mail/out is paused (by ada, ", ""},
		{"jobs ls mail out --state=leased", "40 % row 4", "", "state=leased"},
		{"jobs stat mail out", "acked and kept  5", "", ""},
		{"jobs stat mail out", "delivery  paused (by ada, ", "", ""},
		{"ls mail --paused", "", "queue mail/out is paused (by ada, ", ""},
		{"stat mail --audit", "published 100 acked 60 acked and kept 7 residual 0", "", "audit=1"},
		{"jobs stat mail wrong", "ready 0", "the queue has no jobs: spillway jobs ls NAMESPACE has those that do\n", ""},
		{"jobs ls mail wrong", "", "no job is ready\n", ""},
		{"jobs ls mail over --state=delayed", "", "no job is delayed, but of the queue 0 are ready, 1 delayed, prepared or leased, 2 dead, 3 acked and kept: see --state\n", ""},
		{"jobs stat mail out", "oldest ready  1m01s", "", ""},
		{"jobs peek mail out", "leased until 2025-11-20T09:07:55Z", "", ""},
		{"jobs peek mail out", `attributes  {"a":"b"}`, "", ""},
		{"jobs get mail out " + jobID, "attempt 1 of 3", "", ""},
		{"jobs get mail out " + jobID + "-mine", "state ready next attempt 6 of 6", "", ""},
		{"jobs ls mail big", "NEXT ATTEMPT BYTES " + jobID + " 2025-11-20T09:06:55Z - 2025-11-20T09:06:55Z 1 of 3 7", "", ""},
		{"jobs get mail out " + strings.ToLower(jobID), "dead since 2025-11-20T09:07:55Z, lapsed attempt 1 of 3 published 2025-11-20T09:06:55Z, 1m01s ago bytes 7", "", ""},
		{"jobs trace mail out " + jobID, "2025-11-20T09:06:55.000Z published - web 2025-11-20T09:06:56.000Z written 1 - crm retried in 30ms with 503 2025-11-20T09:06:56.001Z nacked 1 push no\\u001b[2J 2025-11-20T09:06:56.001Z dead - - nacked", "", ""},
		{"jobs dead mail out --limit=1", jobID + "  2025-11-20T09:07:55Z buried - 2025-11-20T09:06:55Z - of 3 7", "1 of 7 dead letters", "limit=1"},
		{"jobs dead mail php", "JOB  DIED", "0 of 7 dead letters", ""},
		{"jobs dead mail why --by cause", "COUNT FIRST LAST CAUSE ID OF THE LAST WHICH SAID 7 2025-11-20T09:06:55Z 2025-11-20T09:07:55Z timeout after # " + jobID + " timeout after 3s", "of 7 dead letters\n", "/queues/why/dead?by=cause"},
		{"jobs forecast mail out --step=1m --steps=4", "2025-11-20T09:07:55Z 0ms to 1m 0 1 2025-11-20T09:08:55Z 1m to 2m 5 0 2025-11-20T09:10:55Z 3m to 4m 2 3", "7 delayed jobs and 4 ticks of schedules come due within 4m; of each", "step=1m0s&steps=4"},
		{"jobs forecast mail", "", "0 delayed jobs and 0 ticks of schedules come due within 4h\n", ""},
		{"jobs peek mail out -o json", `"job":"` + jobID, "", ""},
		{"ls --namespaces", "NAMESPACE  PUBLISHED/s", "", ""},
	} {
		out, stderr, code := run(t, api, strings.Fields(tt.args)...)
		words := func(text string) string { return strings.Join(strings.Fields(text), " ") } // whatever the widths
		if code != 0 || !strings.Contains(words(out), words(tt.want)) || !strings.Contains(stderr, tt.stderr) || !strings.Contains(api.requests(), tt.asked) {
			t.Errorf("%s: exit %d\n%s%s", tt.args, code, out, stderr)
		}
	}
}

func TestActsOnJobsCountAndAskFirst(t *testing.T) {
	t.Parallel()
	const queue = "POST /api/v1/namespaces/mail/queues/out"
	for _, tt := range []struct {
		args, route string
		answers     []string
		code        int
		want, asked string
	}{
		{"jobs respawn mail out --limit=5 --ttl=1h --yes", "/dead/respawn", []string{`{"dry_run":true,"jobs":5}`, `{"jobs":3}`, `{"jobs":2,"complete":true}`}, 0, "made ready 5 dead letters",
			`{"dry_run":"1","limit":"5","ttl":"1h0m0s"}|{"confirm":"5","limit":"5","ttl":"1h0m0s"}|{"confirm":"2","limit":"5","ttl":"1h0m0s"}`},
		{"jobs respawn mail out --reason=lapsed --error=timeout --age=1h --yes", "/dead/respawn", []string{`{"dry_run":true,"jobs":5}`, `{"jobs":5,"complete":true}`}, 0, "made ready 5 dead letters",
			`{"age":"1h0m0s","confirm":"5","error":"timeout","reason":"lapsed"}`},
		{"jobs respawn mail out " + jobID + " --yes", "/dead/respawn", []string{`{"dry_run":true,"jobs":1}`, `{"jobs":1,"complete":true}`}, 0, "made ready 1 dead letter",
			`{"dry_run":"1","ids":"[\"` + jobID + `\"]"}|{"confirm":"1","ids":"[\"` + jobID + `\"]"}`},
		{"jobs respawn mail out " + jobID, "/dead/respawn", []string{`{"dry_run":true,"jobs":0}`}, 0, "spillway jobs get says in which state", ""},
		{"jobs respawn mail out --cause=timeout --limit=7 --yes", "/dead/respawn", []string{`{"dry_run":true,"jobs":5}`, `{"jobs":5,"complete":true}`}, 0, "made ready 5 dead letters",
			`{"cause":"timeout","confirm":"5","limit":"7"}`},
		{"jobs respawn mail out --error=", "", nil, 2, "error is a part of", ""},
		{"jobs respawn mail out --cause=", "", nil, 2, "cause is missing or empty", ""},
		{"jobs rm-dead mail out --cause=timeout --yes", "/dead/delete", []string{`{"jobs":2}`, `{"jobs":2,"complete":true}`}, 0, "deleted 2 dead letters", `{"cause":"timeout","confirm":"2"}`},
		{"jobs promote mail out " + jobID + " --yes", "/jobs/" + jobID + "/promote", []string{`{"state":"ready"}`}, 0, "out/" + jobID + ": ready", `{}`},
		{"jobs promote mail out " + jobID + " " + jobID + " --yes", "/jobs/" + jobID + "/promote", []string{`{"state":"ready"}`, `{"error":"conflict","message":"the job is not delayed"}`}, 1, jobID + ": the job is not delayed", `{}|{}`},
		{"jobs promote mail out " + jobID + " " + jobID, "", nil, 2, "add --yes to make them ready now (2)", ""},
		{"jobs purge mail out --yes", "/purge", []string{`{"jobs":7}`, `{"jobs":8,"complete":true}`}, 0, "deleted 8 jobs", `{"dry_run":"1"}|{"confirm":"7"}`},
		{"jobs purge mail out --all", "/purge", []string{`{"jobs":7}`}, 2, "add --yes", `{"all":"1","dry_run":"1"}`},
		{"jobs purge mail out --dry-run", "/purge", []string{`{"jobs":7}`}, 0, "nothing was changed", `{"dry_run":"1"}`},
		{"jobs purge mail out", "/purge", []string{`{"jobs":0,"others":3}`}, 0, "3 more are delayed, leased or dead: --all deletes those as well", `{"dry_run":"1"}`},
		{"jobs rm-dead mail out --yes", "/dead/delete", []string{`{"jobs":2}`, `{"jobs":2,"complete":true}`}, 0, "deleted 2 dead letters", `{"dry_run":"1"}|{"confirm":"2"}`},
		{"jobs rm mail out " + jobID + " --yes", "/jobs/" + jobID + "/delete", []string{`{"state":"deleted"}`}, 0, "out/" + jobID + ": deleted", `{}`},
		{"jobs commit mail out " + jobID + " --yes", "/jobs/" + jobID + "/commit", []string{`{"result":"committed"}`}, 0, "out/" + jobID + ": committed", `{}`},
		{"jobs rollback mail out " + jobID + " --yes", "/jobs/" + jobID + "/rollback", []string{`{"error":"conflict","message":"the job is not prepared"}`}, 1, "not prepared", ""},
		{"jobs rm-dead mail out", "/dead/delete", []string{`{"error":"forbidden","message":"this needs the role operator"}`}, 1, "needs the role operator", ""},
		{"jobs rm mail out ../purge --yes", "", nil, 2, "not the id of a job", ""},
		{"jobs purge mail a/b --yes", "", nil, 2, "a queue's name is", ""},
		{"jobs respawn mail out --limit=-1", "", nil, 2, "limit is a number from 0", ""},
	} {
		api := newFakeAPI(t, map[string]string{})
		api.queue[queue+tt.route] = tt.answers
		out, stderr, code := run(t, api, strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(out+stderr, tt.want) {
			t.Errorf("%s: exit %d, %s%s", tt.args, code, out, stderr)
		}
		for _, body := range strings.Split(tt.asked, "|") {
			if !strings.Contains(api.requests()+"\n", " "+body+"\n") && body != "" {
				t.Errorf("%s: it did not send %s but\n%s", tt.args, body, api.requests())
			}
		}
	}
}

func TestTopShowsQueues(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, map[string]string{"GET /api/v1/info": `{"namespaces":[],"queues":["mail"]}`,
		"GET /api/v1/overview": strings.Replace(mailView, `"findings":[]`, `"findings":[{"level":"loss","namespace":"mail","what":"2 jobs were lost"}]`, 1)})
	out, stderr, code := run(t, api, "top", "--once")
	if words := strings.Join(strings.Fields(out), " "); code != 0 || !strings.HasPrefix(out, "NO DATA IS BEING LOST\n  loss    mail: 2 jobs were lost\n") || !strings.HasSuffix(words, "SINK mail 5.0 4.0 0.8 1 20 6 4 4 1m01s 2 -") {
		t.Errorf("exit %d, %s%s", code, out, stderr)
	}
}

func TestWorkersAreListedWithTheirChildrenAndSinceWhen(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t, map[string]string{
		"GET /api/v1/namespaces/shop/workers": `{"workers":[{"name":"web1-7","children":4,"busy":3,"memory":134217728,"version":"1.4.0","queues":["default","mail"],"token":"workers","seen_ms":1,"since_ms":1}]}`,
	})
	out, _, code := run(t, api, "workers", "ls", "shop")
	row := strings.Join(strings.Fields(out), " ")
	if code != 0 || !strings.HasPrefix(row, "WORKER QUEUES CHILDREN BUSY MEMORY VERSION TOKEN SINCE SEEN web1-7 default mail 4 3 128 MiB 1.4.0 workers ") {
		t.Errorf("%d: %s", code, out)
	}
}

func TestJobsPublishSendsEachLineAsAJob(t *testing.T) {
	t.Parallel()
	const route = "POST /api/v1/namespaces/mail/queues/out/jobs"
	big := `"` + strings.Repeat("x", 40<<10) + `"`
	for _, tt := range []struct {
		input, args string
		answers     []string
		code        int
		out, stderr string
		asked       string
	}{
		{"{\"a\": 1}\n\n2\n", "--delay=1m --ttl=1h --tries=3", []string{`{"ids":["x","y"]}`}, 0, "x\ny\n", "published 2 jobs", `{"data":[{"a":1},2],"delay_ms":60000,"ttl_ms":3600000,"tries":3}`},
		{big + "\n" + big, "", []string{`{"ids":["x"]}`, `{"ids":["y"]}`}, 0, "x\ny\n", "published 2 jobs", `{"data":[` + big + `]}`},
		{`"` + strings.Repeat("<", 40<<10) + `"`, "", []string{`{"ids":["x"]}`}, 0, "x\n", "published 1 job", `{"data":["<<<`},
		{"1\nno json\n", "", []string{`{"error":"conflict","message":"too many jobs"}`}, 1, "", "after 0 jobs that were published: ", ""},
		{"1\nno json\n", "", []string{`{"ids":["x"]}`}, 2, "x\n", "line 2 is not JSON", `{"data":[1]}`},
		{big + "\n" + big, "", []string{`{"ids":["x"]}`, `{"error":"conflict","message":"too many jobs"}`}, 1, "x\n", "after 1 job that was published: ", ""},
		{`"` + strings.Repeat("x", 60<<10) + `"`, "", nil, 2, "", "a line is longer than", ""},
		{"1", "--delay=-1s", nil, 2, "", "delay: want 0 or more", ""},
		{"", "", nil, 0, "", "published 0 jobs", ""},
	} {
		api := newFakeAPI(t, map[string]string{})
		api.queue[route] = tt.answers
		out, stderr, code := runWith(t, api, tt.input, append(strings.Fields("jobs publish mail out"), strings.Fields(tt.args)...)...)
		if code != tt.code || out != tt.out || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%.40s: exit %d, %q, %s", tt.input, code, out, stderr)
		}
		if !strings.Contains(api.requests(), tt.asked) {
			t.Errorf("%.40s: it did not send %.80s but\n%.200s", tt.input, tt.asked, api.requests())
		}
	}
}
