// Schedules, reads, moves and cancels a task with a client that is generated from the
// server's own description, and shows that an unknown token is refused.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const baseUrl = process.env.URL!;
const as = (token: string) => createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
const client = as(process.env.TOKEN!);
const task = { topic: "orders", id: "o/1 é" };
const path = "/v1/topics/{topic}/tasks/{id}";

const stored = await client.PUT(path, {
  params: { path: task, query: { in: "30m", priority: 3 }, header: { "If-None-Match": "*" } },
  body: { order: 1 },
});
assert.equal(stored.response.status, 201);
assert.equal(stored.data?.id, task.id);

const again = await client.PUT(path, {
  params: { path: task, query: { in: "30m" }, header: { "If-None-Match": "*" } },
  body: { order: 2 },
});
assert.equal(again.response.status, 412);
assert.deepEqual([again.error?.code, again.error?.done, again.error?.retry], ["exists", "no", false]);

const moved = await client.PATCH(path, { params: { path: task, query: { at: "2099-12-01T10:00:00+01:00" } } });
assert.equal(moved.data?.due, "2099-12-01T09:00:00.000Z");

const read = await client.GET(path, { params: { path: task } });
assert.deepEqual(
  [read.data?.state, read.data?.payload, read.data?.content_type, read.data?.priority],
  ["waiting", '{"order":1}', "application/json", 3],
);

const refused = await as("0".repeat(64)).DELETE(path, { params: { path: task } });
assert.deepEqual([refused.response.status, refused.error?.code], [401, "unauthorized"]);

const lines = await client.POST("/v1/topics/{topic}/tasks", {
  params: { path: { topic: task.topic } },
  body: `{"verb":"cancel","id":"${task.id}"}\n{"verb":"get","id":"${task.id}"}\n`,
  headers: { "Content-Type": "application/x-ndjson" },
  bodySerializer: (body) => body,
  parseAs: "text",
});
const statuses = lines.data!.trim().split("\n").map((line) => JSON.parse(line).status);
assert.deepEqual(statuses, [200, 404]);

const gone = await client.DELETE(path, { params: { path: task } });
assert.deepEqual([gone.response.status, gone.error?.code], [404, "not_found"]);
