"use strict";

const { randomBytes } = require("node:crypto");
const os = require("node:os");

/** People see who holds and who waits. Nobody can guess the rest. */
const host = os.hostname().replace(/[^\w.-]/g, "-").slice(0, 60);

/** What the IDs of a process have in common, and its channel. */
const newClient = () => `${host}.${process.pid}.${randomBytes(8).toString("hex")}`;

/** It names a request, and then the permit that it becomes. */
const newId = (client, weight, lease) => `P:${client}:${weight}:${lease}:${randomBytes(16).toString("base64url")}`;

/** The lease in an ID of this client; undefined where it is none. */
function leaseOf(client, id) {
  const parts = /^P:([\w.-]+):([1-9]\d{0,9}):([1-9]\d{0,8}):[\w-]{16,64}$/.exec(id);
  if (!parts || parts[1] !== client) return undefined;
  const [weight, lease] = [Number(parts[2]), Number(parts[3])];
  return weight < 2 ** 32 && lease <= 604_800_000 ? lease : undefined;
}

module.exports = { newClient, newId, leaseOf };
