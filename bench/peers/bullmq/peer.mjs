// BullMQ as a peer of the benchmarks.
//
//   node peer.mjs produce   reads lines [number of the batch, [[id, due ms, payload], ...]],
//                           adds the tasks, and answers with the number of the batch
//   node peer.mjs work      publishes due tasks, with confirms, until stdin ends
//
// REDIS_PORT, AMQP_URL and EXCHANGE name the servers.
import { createInterface } from 'node:readline'
import amqp from 'amqplib'
import { Queue, Worker } from 'bullmq'

const connection = { host: '127.0.0.1', port: Number(process.env.REDIS_PORT), maxRetriesPerRequest: null }
const name = 'orders'

async function produce() {
  const queue = new Queue(name, { connection })
  await queue.waitUntilReady()
  console.log('ready')
  for await (const line of createInterface({ input: process.stdin })) {
    const [number, tasks] = JSON.parse(line)
    const now = Date.now()
    queue.addBulk(tasks.map(([id, due, payload]) => ({
      name,
      data: payload,
      opts: { jobId: id, delay: Math.max(0, due - now), removeOnComplete: true },
    }))).then(() => console.log(number), (error) => {
      console.error(error)
      process.exit(1)
    })
  }
  await queue.close()
}

async function work() {
  const broker = await amqp.connect(process.env.AMQP_URL)
  const channel = await broker.createConfirmChannel()
  const exchange = process.env.EXCHANGE
  const worker = new Worker(name, (job) => new Promise((resolve, reject) => {
    const options = { persistent: true, mandatory: true, messageId: job.id }
    channel.publish(exchange, exchange, Buffer.from(job.data), options, (error) => error ? reject(error) : resolve())
  }), { connection, concurrency: 500 })
  await worker.waitUntilReady()
  console.log('ready')
  for await (const _ of process.stdin);
  await worker.close()
  await broker.close()
}

const roles = { produce, work }
await roles[process.argv[2]]()
process.exit(0)
