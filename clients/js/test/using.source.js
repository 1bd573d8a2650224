// What a program with "await using" looks like; run through a transpiler where Node does not know it.
export async function useBlock(guard, work) {
  await using hold = await guard.acquire();
  return (await work(hold)).length;
}
