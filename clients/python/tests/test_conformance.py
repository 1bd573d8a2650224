"""Plays clients/conformance.json, on the blocking client and on that of asyncio."""

import asyncio
import concurrent.futures
import json
import pathlib
import unittest
import uuid

import gatehouse
from gatehouse import aio

from .server import patience, shared_address

TABLE = json.loads((pathlib.Path(__file__).parents[2] / "conformance.json").read_text("utf-8"))
KINDS = ("lock", "semaphore", "gcra", "tokenbucket", "slidinglog")


class Player:
    """One case, on either client: ``run`` calls it, and returns what it returns."""

    def __init__(self, client, run):
        self.client, self.run = client, run
        self.prefix = str(uuid.uuid4())
        self.saved = {}

    def name(self, text):
        return f"{self.prefix}/{text}"

    def resolve(self, value):
        return self.saved[value[1:]] if isinstance(value, str) and value.startswith("$") else value

    def call(self, step):
        """What the step is answered: its outcome, and the members of the decision."""
        try:
            if "grant" in step:
                decision = self.run(self.grant_call(step))
            elif step["op"] == "delete":
                found = self.run(self.client.delete(step["kind"], self.name(step["name"])))
                return {"outcome": "granted" if found else "missing"}
            else:
                given = {k: self.resolve(v) for k, v in step.get("with", {}).items()}
                if "key" in given:
                    given["key"] = self.name(given["key"])
                decision = self.run(self.client.do(step["kind"], self.name(step["name"]), step["op"], **given))
        except gatehouse.GatehouseError as error:
            return {"outcome": error.code, "detail": error.detail}
        found = dict(decision.raw)
        found["outcome"] = "granted" if decision else "refused"
        found.update(fence=decision.fence)
        return found

    def grant_call(self, step):
        id = self.prefix + "-" + step["grant"]
        if step["op"] == "acquire":
            want = [{k: self.name(v) if k in KINDS else v for k, v in m.items()} for m in step["with"]["want"]]
            return self.client.do_grant({**step["with"], "id": id, "want": want})
        costs = step.get("costs", {})
        body = {kind + "/" + self.name(name): v for k, v in costs.items() for kind, name in [k.split("/", 1)]}
        return self.client.call_grant(id, step["op"], body)

    def judge(self, test, step, found):
        for member, want in step["want"].items():
            got = found.get(member)
            where = f"{step}: {member} = {got!r} in {found}"
            if isinstance(want, dict) and "above" in want:
                test.assertGreater(got, self.resolve(want["above"]), where)
            elif isinstance(want, dict):
                test.assertTrue(want["from"] <= got <= want["to"], where)
            elif member == "value":  # of 64 bits, which not every JSON has
                test.assertEqual(str(got), want, where)
            else:
                test.assertEqual(got, self.resolve(want), where)
        for name, member in step.get("save", {}).items():
            self.saved[name] = found[member]


class Conformance(unittest.TestCase):
    """Every case of the table."""

    def play(self, client, run, case):
        player, beside = Player(client, run), {}
        with concurrent.futures.ThreadPoolExecutor() as threads:
            for step in case["steps"]:
                if "finish" in step:
                    begun, future = beside.pop(step["finish"])
                    player.judge(self, begun, future.result(patience))
                elif "begin" in step:
                    beside[step["begin"]] = step, threads.submit(player.call, step)
                    name = player.name(step["name"])
                    while True:  # each look is a request, so nothing spins
                        try:
                            if len(run(client.waiters(step["kind"], name))) >= step["until_waiting"]:
                                break
                        except gatehouse.Missing:
                            pass
                else:
                    player.judge(self, step, player.call(step))

    def test_blocking(self):
        with gatehouse.Client(shared_address(), timeout=patience) as client:
            for case in TABLE["cases"]:
                with self.subTest(case["name"]):
                    self.play(client, lambda decision: decision, case)

    def test_asyncio(self):
        async def all_cases():
            loop = asyncio.get_running_loop()

            def run(call):
                return asyncio.run_coroutine_threadsafe(call, loop).result(patience)

            async with aio.Client(shared_address(), timeout=patience) as client:
                for case in TABLE["cases"]:
                    with self.subTest(case["name"]):
                        await loop.run_in_executor(None, self.play, client, run, case)

        asyncio.run(all_cases())
