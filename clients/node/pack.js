"use strict";

// npm packs no symbolic links. So this replaces the links with files before packing, and restores them afterwards.
//
//     node pack.js files | links

const fs = require("node:fs");
const path = require("node:path");

const LINKS = {
  "LICENSE-APACHE": "../../LICENSE-APACHE",
  "LICENSE-MIT": "../../LICENSE-MIT",
  "lib/manifest.json": "../../../lua/manifest.json",
};

// A copy of this directory made with `cp -rL` contains the files already.
const lib = path.join(__dirname, "lib");
if (fs.existsSync(path.join(lib, "manifest.json")) && !fs.existsSync(path.resolve(lib, LINKS["lib/manifest.json"]))) process.exit();

const put = process.argv[2] === "files"
  ? (target, file) => fs.copyFileSync(path.resolve(path.dirname(file), target), file)
  : (target, file) => fs.symlinkSync(target, file);

// Creates all new entries under other names first, and then renames them. If one cannot be created, nothing changes.
const made = [];
try {
  for (const [link, target] of Object.entries(LINKS)) {
    const file = path.join(__dirname, link);
    const fresh = `${file}.new`;
    fs.rmSync(fresh, { force: true });
    put(target, fresh);
    made.push([fresh, file]);
  }
  for (const [fresh, file] of made) fs.renameSync(fresh, file);
} finally {
  for (const [fresh] of made) fs.rmSync(fresh, { force: true });
}
