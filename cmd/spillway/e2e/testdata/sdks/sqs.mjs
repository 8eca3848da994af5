// Unmodified @aws-sdk/client-sqs and sqs-consumer on a queue of Spillway. It sends 30 messages,
// lets a Consumer handle them, and prints how many.
//
//   node sqs.mjs URL ID SECRET
import { CreateQueueCommand, DeleteMessageCommand, SendMessageBatchCommand, SQSClient } from '@aws-sdk/client-sqs';
import { Consumer } from 'sqs-consumer';

const [endpoint, accessKeyId, secretAccessKey] = process.argv.slice(2);
const sqs = new SQSClient({ endpoint, region: 'us-east-1', credentials: { accessKeyId, secretAccessKey } });
const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: 'node' }));
for (let batch = 0; batch < 3; batch++) {
  const Entries = Array.from({ length: 10 }, (_, i) => ({
    Id: `${i}`,
    MessageBody: `${batch}-${i} <&>\r\n"é"`,
    MessageAttributes: { b: { DataType: 'Binary', BinaryValue: new Uint8Array([0, 255]) } },
  }));
  const { Successful } = await sqs.send(new SendMessageBatchCommand({ QueueUrl, Entries }));
  if (Successful.length !== 10) throw new Error(JSON.stringify(Successful));
}
const bodies = new Set();
await new Promise((resolve, reject) => {
  const consumer = Consumer.create({
    queueUrl: QueueUrl,
    sqs,
    batchSize: 10,
    visibilityTimeout: 30,
    heartbeatInterval: 10,
    messageAttributeNames: ['All'],
    handleMessage: async (message) => {
      if (message.MessageAttributes.b.BinaryValue[1] !== 255) throw new Error(JSON.stringify(message));
      bodies.add(message.Body);
      return message;
    },
  });
  for (const event of ['error', 'processing_error', 'timeout_error']) consumer.on(event, reject);
  consumer.on('response_processed', () => bodies.size === 30 && consumer.stop());
  consumer.on('stopped', resolve);
  consumer.start();
});
const wrong = await sqs.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: 'of no message' })).catch((err) => err);
if (wrong.name !== 'ReceiptHandleIsInvalid') throw wrong;
console.log(bodies.size);
process.exit(0);
