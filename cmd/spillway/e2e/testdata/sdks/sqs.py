"""Unmodified boto3 and Celery on a queue of Spillway.

boto3:   sqs.py URL ID SECRET sends, receives and deletes 30 messages, and prints how many.
Celery:  celery -A sqs worker runs tasks; sqs.py tasks N publishes N of them. BROKER is the URL,
         and each task that ran adds a line to the file OUT.
"""
import os
import sys

import boto3

if "BROKER" in os.environ:
    from celery import Celery

    app = Celery("sqs", broker=os.environ["BROKER"])
    app.conf.broker_transport_options = {
        "region": "us-east-1", "is_secure": False, "wait_time_seconds": 20, "visibility_timeout": 60}
    app.conf.task_default_queue = "celery"
    app.conf.worker_enable_remote_control = False

    @app.task(name="add")
    def add(n):
        with open(os.environ["OUT"], "a") as out:
            out.write("%d\n" % n)


def boto(url, key, secret):
    client = boto3.client("sqs", endpoint_url=url, region_name="us-east-1",
                          aws_access_key_id=key, aws_secret_access_key=secret)
    queue = client.create_queue(QueueName="boto", Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    for batch in range(3):
        sent = client.send_message_batch(QueueUrl=queue, Entries=[
            {"Id": str(n), "MessageBody": "%d-%d <&>\r\n\"é\"" % (batch, n),
             "MessageAttributes": {"n": {"DataType": "Number", "StringValue": str(n)},
                                   "b": {"DataType": "Binary", "BinaryValue": b"\0\xff"}}} for n in range(10)])
        assert len(sent["Successful"]) == 10, sent
    bodies = set()
    while len(bodies) < 30:
        got = client.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=5,
                                     AttributeNames=["All"], MessageAttributeNames=["All"])["Messages"]
        for message in got:
            assert message["MessageAttributes"]["b"]["BinaryValue"] == b"\0\xff", message
            assert message["Attributes"]["ApproximateReceiveCount"] == "1", message
            bodies.add(message["Body"])
        deleted = client.delete_message_batch(QueueUrl=queue, Entries=[
            {"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(got)])
        assert len(deleted["Successful"]) == len(got), deleted
    try:
        client.delete_message(QueueUrl=queue, ReceiptHandle="of no message")
        raise AssertionError("a receipt handle of no message was taken")
    except client.exceptions.ReceiptHandleIsInvalid:
        pass
    print(len(bodies))


if __name__ == "__main__":
    if sys.argv[1] == "tasks":
        for i in range(int(sys.argv[2])):
            add.delay(i)
    else:
        boto(*sys.argv[1:])
