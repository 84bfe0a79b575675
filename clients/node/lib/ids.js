"use strict";

const { randomBytes } = require("node:crypto");
const os = require("node:os");

/** The readable part of the client. The rest is random. */
const host = os.hostname().replace(/[^\w.-]/g, "-").slice(0, 60);

/** Generates a client, which is a part of its IDs and of its channel. */
const newClient = () => `${host}.${process.pid}.${randomBytes(8).toString("hex")}`;

/** Generates the ID of a request, and of its permit. */
const newId = (client, weight, lease) => `P:${client}:${weight}:${lease}:${randomBytes(16).toString("base64url")}`;

/** Returns the lease in an ID of this client, or undefined if it is no such ID. */
function leaseOf(client, id) {
  const parts = /^P:([\w.-]+):([1-9]\d{0,9}):([1-9]\d{0,8}):[\w-]{16,64}$/.exec(id);
  if (!parts || parts[1] !== client) return undefined;
  const [weight, lease] = [Number(parts[2]), Number(parts[3])];
  return weight < 2 ** 32 && lease <= 604_800_000 ? lease : undefined;
}

module.exports = { newClient, newId, leaseOf };
