// Consumes COUNT orders and prints each as a line of JSON.
const amqp = require('amqplib');

const exchange = process.env.EXCHANGE || 'orders';
const queue = process.env.QUEUE;

async function declare(channel) {
  // With the plugin: 'x-delayed-message', { durable: true, arguments: { 'x-delayed-type': 'topic' } }
  await channel.assertExchange(exchange, 'topic', { durable: true });
}

function print({ content, fields, properties }) {
  const { headers, clusterId, ...others } = properties;
  const line = {
    at: Date.now(), body: content.toString('base64'), key: fields.routingKey, properties: others, headers,
  };
  console.log(JSON.stringify(line));
}

async function main() {
  const connection = await amqp.connect(process.env.AMQP_URL);
  const channel = await connection.createChannel();
  await declare(channel);
  await channel.assertQueue(queue, { durable: true });
  await channel.bindQueue(queue, exchange, 'order.#');
  await channel.prefetch(10);
  let left = Number(process.env.COUNT);
  await channel.consume(queue, async (message) => {
    print(message);
    channel.ack(message);
    left -= 1;
    if (left === 0) {
      await channel.close();
      await connection.close();
    }
  });
  console.log('ready');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
