// Runs the functions of a program, and reports each that holds.
export const port = Number(process.env.PORT);

export async function run(program, checks) {
  let failed = false;
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log(`ok ${program}: ${name}`);
    } catch (error) {
      failed = true;
      console.log(`FAILED ${program}: ${name}\n${error.stack}`);
    }
  }
  process.exit(failed ? 1 : 0);
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Waits until a condition holds, for a minute at most.
export async function until(what, condition) {
  for (const end = Date.now() + 60_000; Date.now() < end; await sleep(5)) {
    if (await condition()) return;
  }
  throw new Error(`never: ${what}`);
}
