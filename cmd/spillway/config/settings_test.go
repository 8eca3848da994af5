package config

import (
	"reflect"
	"testing"

	"github.com/spillway-io/spillway/drain"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
)

func TestDefaultsAreThoseOfThePackages(t *testing.T) {
	t.Parallel()
	c, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Default.Policy(), partition.DefaultPolicy(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := c.Drain(), drain.DefaultConfig(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	in, want := c.Ingest(), ingest.DefaultConfig()
	in.Tokens, in.CORSOrigins, in.SDKs, in.NamespaceKeys = nil, nil, nil, false
	if !reflect.DeepEqual(in, want) {
		t.Errorf("got %+v, want %+v", in, want)
	}
}

// CopyFields would leave out a field of Policy that no setting has the name of.
func TestEveryFieldOfPolicyIsASettingOfANamespace(t *testing.T) {
	t.Parallel()
	policy, namespace := reflect.TypeFor[partition.Policy](), reflect.TypeFor[Namespace]()
	for i := range policy.NumField() {
		field := policy.Field(i)
		if setting, ok := namespace.FieldByName(field.Name); !ok || !setting.Type.ConvertibleTo(field.Type) {
			t.Errorf("Policy.%s has no setting of its name and type", field.Name)
		}
	}
}
