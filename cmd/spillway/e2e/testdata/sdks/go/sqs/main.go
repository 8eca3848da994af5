// Command sqs runs the unmodified aws-sdk-go-v2 on a queue of Spillway: it sends 30 messages,
// receives and deletes them, and prints how many.
//
//	sqs URL ID SECRET
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	n, err := run(ctx, os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(n)
}

func run(ctx context.Context, url, id, secret string) (int, error) {
	client := sqs.New(sqs.Options{
		BaseEndpoint: &url,
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider(id, secret, ""),
	})
	created, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("go")})
	if err != nil {
		return 0, err
	}
	for batch := range 3 {
		var entries []types.SendMessageBatchRequestEntry
		for i := range 10 {
			entries = append(entries, types.SendMessageBatchRequestEntry{
				Id:          aws.String(strconv.Itoa(i)),
				MessageBody: aws.String(fmt.Sprintf("%d-%d <&>\r\n\"é\"", batch, i)),
				MessageAttributes: map[string]types.MessageAttributeValue{
					"b": {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}},
				},
			})
		}
		sent, err := client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: created.QueueUrl, Entries: entries})
		if err != nil || len(sent.Successful) != 10 {
			return 0, fmt.Errorf("send: %v, %w", sent, err)
		}
	}
	bodies := map[string]bool{}
	for len(bodies) < 30 {
		got, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: created.QueueUrl, MaxNumberOfMessages: 10,
			WaitTimeSeconds: 5, MessageAttributeNames: []string{"All"}})
		if err != nil {
			return 0, err
		}
		for _, m := range got.Messages {
			if b := m.MessageAttributes["b"].BinaryValue; len(b) != 2 || b[1] != 255 {
				return 0, fmt.Errorf("attribute %v", b)
			}
			bodies[*m.Body] = true
			if _, err := client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: created.QueueUrl, ReceiptHandle: m.ReceiptHandle}); err != nil {
				return 0, err
			}
		}
	}
	_, err = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: created.QueueUrl, ReceiptHandle: aws.String("of no message")})
	var invalid *types.ReceiptHandleIsInvalid
	if !errors.As(err, &invalid) {
		return 0, fmt.Errorf("a receipt handle of no message: %w", err)
	}
	return len(bodies), nil
}
