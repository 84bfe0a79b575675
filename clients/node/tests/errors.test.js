"use strict";

const assert = require("node:assert/strict");
const { inspect } = require("node:util");
const errors = require("../index.js");
const { test } = require("./support.js");

const CODES = {
  SemaphoreError: "SEM_LEASE_TOO_SHORT",
  TooHeavy: "SEM_TOO_HEAVY",
  AcquireTimeout: "SEM_TIMEOUT",
  PermitLost: "SEM_LOST",
  Unavailable: "SEM_UNAVAILABLE",
  Rejected: "SEM_REJECTED",
  Unsupported: "SEM_UNSUPPORTED",
  Closed: "SEM_CLOSED",
};

test("every error has a code, and a name that does not depend on the name of its class", async () => {
  const exported = Object.keys(errors).filter((name) => errors[name].prototype instanceof Error);
  assert.deepEqual(exported.sort(), Object.keys(CODES).sort());
  for (const [name, code] of Object.entries(CODES)) {
    const error = new errors[name]("jobs", "acquire", new Error("why"));
    assert.equal(error.name, name);
    assert.equal(error.code, code);
    assert.ok(inspect(error).startsWith(`${name}: `), inspect(error));
    assert.deepEqual(Object.keys(error).filter((key) => ["name", "code"].includes(key)), []);
    // A minifier does this.
    Object.defineProperty(errors[name], "name", { value: "aS" });
    assert.equal(error.name, name);
  }
});
