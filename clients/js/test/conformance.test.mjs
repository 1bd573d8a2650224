// Plays clients/conformance.json.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Client, GatehouseError, Missing } from "../src/index.js";

const table = JSON.parse(readFileSync(new URL("../../conformance.json", import.meta.url), "utf8"));
const kinds = ["lock", "semaphore", "gcra", "tokenbucket", "slidinglog"];
const gh = new Client(process.env.GATEHOUSE_ADDRESS, { timeout: 60_000 });

class Player {
  prefix = randomUUID();
  saved = {};

  name(text) {
    return `${this.prefix}/${text}`;
  }

  resolve(value) {
    return typeof value === "string" && value.startsWith("$") ? this.saved[value.slice(1)] : value;
  }

  /** What a step is answered: its outcome, and the members of the decision. */
  async call(step) {
    try {
      if (step.grant !== undefined) {
        const decision = await this.callGrant(step);
        return { fence: decision.fence, outcome: decision.granted ? "granted" : "refused" };
      }
      if (step.op === "delete") {
        return { outcome: (await gh.delete(step.kind, this.name(step.name))) ? "granted" : "missing" };
      }
      const given = {};
      for (const [key, value] of Object.entries(step.with ?? {})) {
        given[key] = key === "key" ? this.name(value) : this.resolve(value);
      }
      const decision = await gh.do(step.kind, this.name(step.name), step.op, given);
      const outcome = decision.granted ? "granted" : "refused";
      return { ...decision.raw, value: decision.value?.toString(), outcome };
    } catch (error) {
      if (!(error instanceof GatehouseError)) throw error;
      return { outcome: error.code, detail: error.message };
    }
  }

  callGrant(step) {
    const id = `${this.prefix}-${step.grant}`;
    if (step.op === "acquire") {
      const want = step.with.want.map((member) =>
        Object.fromEntries(Object.entries(member).map(([k, v]) => [k, kinds.includes(k) ? this.name(v) : v])));
      return gh.doGrant({ ...step.with, id, want });
    }
    const costs = Object.entries(step.costs ?? {}).map(([key, cost]) => {
      const slash = key.indexOf("/");
      return [`${key.slice(0, slash)}/${this.name(key.slice(slash + 1))}`, cost];
    });
    return gh.callGrant(id, step.op, Object.fromEntries(costs));
  }

  judge(step, found) {
    for (const [member, want] of Object.entries(step.want)) {
      const got = found[member];
      const where = `${JSON.stringify(step)}: ${member} = ${got} in ${JSON.stringify(found)}`;
      if (want?.above !== undefined) assert.ok(got > this.resolve(want.above), where);
      else if (want?.from !== undefined) assert.ok(want.from <= got && got <= want.to, where);
      else assert.equal(got, this.resolve(want), where);
    }
    for (const [name, member] of Object.entries(step.save ?? {})) this.saved[name] = found[member];
  }
}

for (const { name, steps } of table.cases) {
  test(name, async () => {
    const player = new Player();
    const beside = {};
    for (const step of steps) {
      if (step.finish !== undefined) {
        const { begun, answer } = beside[step.finish];
        player.judge(begun, await answer);
      } else if (step.begin !== undefined) {
        beside[step.begin] = { begun: step, answer: player.call(step) };
        // Each look is a request, so nothing spins.
        const waiting = async () => {
          try {
            return (await gh.waiters(step.kind, player.name(step.name))).length;
          } catch (error) {
            if (error instanceof Missing) return 0;
            throw error;
          }
        };
        while ((await waiting()) < step.until_waiting);
      } else {
        player.judge(step, await player.call(step));
      }
    }
  });
}
