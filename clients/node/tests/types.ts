// Compiled but never run. Checks that the declarations fit programs.
import { AcquireTimeout, Group, PermitLost, Permit, Semaphore, SemaphoreError, SemaphoreClient, TooHeavy, Unavailable } from "../index";

/** Options that a program may have. */
interface Chosen {
  signal?: AbortSignal;
  timeout?: number;
  weight?: number;
  tenant?: string;
  time?: number;
  prefix?: string;
  password?: string;
  socket?: { host: string };
}

/** With exactOptionalPropertyTypes, an option may be undefined only if its type has undefined. */
async function chosen({ signal, timeout, weight, tenant, time, prefix, password, socket }: Chosen): Promise<void> {
  const times = { heartbeatTimeout: time, responseTimeout: time, outageTolerance: time };
  const semaphores = await SemaphoreClient.connect({ url: undefined, password, socket }, { prefix, ...times });
  const semaphore = semaphores.semaphore("printers", { limit: 3, lease: time, maxHold: time, groupShare: weight, groupCap: weight });
  const group: Group | undefined = tenant === undefined ? undefined : { name: tenant, share: weight, cap: weight };
  await semaphore.acquire({ signal, timeout, weight, group });
  await semaphore.tryAcquire({ signal, weight, group: tenant });
  await semaphore.use(() => {}, { signal, timeout, weight, group });
}

async function main(): Promise<void> {
  const semaphores = await SemaphoreClient.connect({ url: "redis://127.0.0.1", socket: { noDelay: true } }, { prefix: "shop" });
  const semaphore = semaphores.semaphore("printers", { limit: 3, lease: 30_000, maxHold: 3_600_000 });
  const controller = new AbortController();
  const length: number = await semaphore.use(async (permit) => `${permit.fencingToken}`.length, { signal: controller.signal });
  const text: string = await semaphore.use(() => "at once", { timeout: 500, weight: length });
  const permit: Permit | null = await semaphore.tryAcquire({ weight: 2 });
  permit?.lost.addEventListener("abort", () => controller.abort(text));
  try {
    const left: number = permit?.expiresIn ?? 0;
    const held: boolean | undefined = permit?.isLost ? false : await permit?.release();
    await permit?.[Symbol.asyncDispose]();
    if (!held) throw new Error(`lost, with ${left} ms left`);
  } catch (error) {
    if (error instanceof TooHeavy) throw new RangeError(`${error.weight} of ${error.limit}`);
    if (error instanceof AcquireTimeout && error.position === 1) throw error;
    if (error instanceof Unavailable && error.semaphore !== undefined) throw error.cause;
    if (error instanceof PermitLost) throw new Error(error.id);
    if (error instanceof SemaphoreError && error.code === "SEM_CLOSED") throw error;
  }
  await semaphores.close();
}

// @ts-expect-error node-redis has no such option
const misspelt = () => SemaphoreClient.connect({ ulr: "redis://127.0.0.1" });
// @ts-expect-error the limit is required
const wrong = (semaphores: SemaphoreClient) => semaphores.semaphore("printers", {});
// @ts-expect-error a group has a name
const nameless = (semaphore: Semaphore) => semaphore.acquire({ group: { share: 3 } });
// @ts-expect-error only semaphores create permits
const forged = () => new Permit();

export { chosen, main, misspelt, nameless, wrong, forged };
