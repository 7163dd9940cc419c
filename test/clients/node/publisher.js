// Publishes COUNT orders with a delay.
const amqp = require('amqplib');

const exchange = process.env.EXCHANGE || 'orders.delayed';
const delays = [undefined, 0, -5, 250, 700.9, 1200, '450', 3000]; // ms

async function declare(channel) {
  // With the plugin: 'x-delayed-message', { durable: true, arguments: { 'x-delayed-type': 'topic' } }
  await channel.assertExchange(exchange, 'topic', { durable: true });
}

function typed(type, value) {
  return { '!': type, value };
}

function headers(n, delay) {
  return {
    text: 'grüße',
    bytes: Buffer.from([0, 255, 128]),
    yes: true,
    no: false,
    int8: n,
    negative: -n,
    int16: 300 + n,
    int32: 70000 + n,
    int64: 2 ** 40 + n,
    uint8: typed('uint8', 255),
    uint16: typed('uint16', 65535),
    uint32: typed('uint32', 4294967295),
    float: typed('float', 0.5),
    double: 12.34,
    decimal: typed('decimal', { places: 2, digits: 1234 }),
    time: typed('timestamp', 1769688000),
    nothing: null,
    list: [n, 'two', true, null, [3], { four: 4 }],
    table: { customer: { id: n, name: 'Ann' }, tags: ['a', 'b'] },
    'x-delay': delay,
  };
}

function options(n, delay) {
  return {
    contentType: 'text/plain',
    contentEncoding: 'identity',
    headers: headers(n, delay),
    deliveryMode: 1 + (n % 2),
    priority: 1 + (n % 9),
    correlationId: `correlation-${n}`,
    replyTo: 'replies',
    expiration: '600000',
    messageId: n % 3 ? `node-${n}` : undefined,
    timestamp: 1769688000 + n,
    type: 'order',
    userId: 'guest',
    appId: 'shop',
  };
}

async function main() {
  const connection = await amqp.connect(process.env.AMQP_URL);
  const channel = await connection.createConfirmChannel();
  await declare(channel);
  const bytes = Buffer.from([...Array(256).keys()]);
  for (let n = 0; n < Number(process.env.COUNT); n++) {
    const body = Buffer.concat([Buffer.from(`${n} ${Date.now()}\n`), bytes]);
    channel.publish(exchange, `order.${n}`, body, options(n, delays[n % delays.length]));
  }
  await channel.waitForConfirms();
  await connection.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
