package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// defaultLimit is Kafka's own default of max.message.bytes, for a user who may not ask.
	defaultLimit = 1_000_012
	minLimit     = 512      // what franz-go takes
	maxLimit     = 16 << 20 // no Write is larger
)

// checkTopic says why nothing can be written to a topic, as far as the cluster tells.
func checkTopic(ctx context.Context, client *kgo.Client, name string) error {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return brief(err)
	}
	if len(resp.Topics) != 1 {
		return errors.New("the cluster does not say where the topic is")
	}
	err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("topic %s does not exist: create it", name)
	case err != nil:
		return fmt.Errorf("topic %s: %w", name, brief(err))
	}
	// The operations are a set of bits; the smallest number says that the cluster does not tell.
	if allowed := resp.Topics[0].AuthorizedOperations; allowed != math.MinInt32 &&
		allowed&(1<<kmsg.ACLOperationWrite) == 0 {
		return fmt.Errorf("topic %s: the user may not write: allow the operation Write", name)
	}
	return nil
}

// topicLimit asks for the max.message.bytes of a topic. Batches of records stay below it, for
// a broker that rejects one does not say which of its records is to blame.
func topicLimit(ctx context.Context, client *kgo.Client, name string) int32 {
	req := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType = kmsg.ConfigResourceTypeTopic
	resource.ResourceName = name
	resource.ConfigNames = []string{"max.message.bytes"}
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return defaultLimit
	}
	for _, r := range resp.Resources {
		for _, c := range r.Configs {
			if c.Name != "max.message.bytes" || c.Value == nil {
				continue
			}
			if n, err := strconv.ParseInt(*c.Value, 10, 32); err == nil {
				return int32(min(max(n, minLimit), maxLimit))
			}
		}
	}
	return defaultLimit
}
