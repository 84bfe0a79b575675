"use strict";

const { randomBytes } = require("node:crypto");
const os = require("node:os");

/** The readable part of the client. The rest is random. */
const host = os.hostname().replace(/[^\w.-]/g, "-").slice(0, 60);

/** Generates a client, which is a part of its IDs and of its channel. */
const newClient = () => `${host}.${process.pid}.${randomBytes(8).toString("hex")}`;

/** Generates the ID of a request, and of its permit. A group without a cap has the cap 0 there. */
function newId(client, weight, lease, group) {
  const part = group ? `${group.name},${group.share},${group.cap ?? 0}:` : "";
  return `P:${client}:${weight}:${lease}:${part}${randomBytes(16).toString("base64url")}`;
}

const ID = new RegExp(
  /^P:([\w.-]+):([1-9]\d{0,9}):([1-9]\d{0,8}):/.source
  + /(?:[\w.-]{1,64},(?:[1-9]\d{0,2}|1000),(0|[1-9]\d{0,9}):)?[\w-]{16,64}$/.source,
);

/** Returns the lease in an ID of this client, or undefined if it is no such ID. */
function leaseOf(client, id) {
  const parts = ID.exec(id);
  if (!parts || parts[1] !== client) return undefined;
  const [weight, lease, cap] = [parts[2], parts[3], parts[4] ?? 0].map(Number);
  const isValid = Math.max(weight, cap) < 2 ** 32 && lease <= 604_800_000 && (cap === 0 || cap >= weight);
  return isValid ? lease : undefined;
}

module.exports = { newClient, newId, leaseOf };
