// A process that holds one lock again and again, for tests/rounds.py of the Python client. Says what it does.

import { Client, GatehouseError } from "../src/index.js";

const term = 500;
const [address, name] = process.argv.slice(2);
const gh = new Client(address, { timeout: 2000 });
const instant = () => process.hrtime.bigint(); // the machine's monotonic clock
const say = (...words) => process.stdout.write(`${words.join(" ")}\n`);
const sleep = (time) => new Promise((resolve) => setTimeout(resolve, time));

for (;;) {
  const long = Math.random() < 0.15; // longer than a term, so that it must be renewed
  const lasts = long ? 2.5 * term : 2 + Math.random() * 18;
  try {
    await gh.lock(name, { expires: term }).run(async (hold) => {
      hold.signal.addEventListener("abort", () => say("lost", instant(), hold.fence));
      say("hold", instant(), hold.fence, long ? "long" : "short");
      const ends = performance.now() + lasts;
      while (performance.now() < ends) {
        const at = instant(); // before the check, so what passes it was held then
        hold.check();
        say("work", at);
        await sleep(long ? 50 : 2);
      }
    });
    say("left", instant());
  } catch (error) {
    if (!(error instanceof GatehouseError)) throw error;
    say("error", error.code);
  }
}
