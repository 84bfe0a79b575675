"use strict";

const {
  AcquireTimeout, Closed, PermitLost, Rejected, SemaphoreError, TooHeavy, Unavailable, Unsupported,
} = require("./lib/errors");
const { Permit } = require("./lib/permit");
const { Semaphore } = require("./lib/semaphore");
const { SemaphoreClient } = require("./lib/client");

// Listed by name, so that `import { SemaphoreClient }` finds the names.
module.exports = {
  SemaphoreClient, Semaphore, Permit,
  AcquireTimeout, Closed, PermitLost, Rejected, SemaphoreError, TooHeavy, Unavailable, Unsupported,
};
