// How many rows there are: what the benchmark asks when Ponder says that it is ready.
import { Hono } from "hono";
import { count } from "ponder";
import { db } from "ponder:api";
import { transfer } from "ponder:schema";

const app = new Hono();
app.get("/count", async (c) => {
  const rows = await db.select({ n: count() }).from(transfer);
  return c.json(rows[0]);
});
export default app;
