"use strict";

const {
  AcquireTimeout, Closed, LeaseLost, Refused, SemaphoreError, TooHeavy, Unavailable, Unsupported,
} = require("./lib/errors");
const { Permit } = require("./lib/permit");
const { Semaphore } = require("./lib/semaphore");
const { Semaphores } = require("./lib/semaphores");

// Written out, so that `import { Semaphores }` finds the names.
module.exports = {
  Semaphores, Semaphore, Permit,
  AcquireTimeout, Closed, LeaseLost, Refused, SemaphoreError, TooHeavy, Unavailable, Unsupported,
};
