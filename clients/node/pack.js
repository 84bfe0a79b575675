"use strict";

// npm packs no links. So before it packs, files take the places of these; then the links are put back.
//
//     node pack.js files | links

const fs = require("node:fs");
const path = require("node:path");

const LINKS = {
  "LICENSE-APACHE": "../../LICENSE-APACHE",
  "LICENSE-MIT": "../../LICENSE-MIT",
  "lib/manifest.json": "../../../lua/manifest.json",
};

for (const [link, target] of Object.entries(LINKS)) {
  const file = path.join(__dirname, link);
  fs.rmSync(file, { force: true });
  if (process.argv[2] === "files") fs.copyFileSync(path.resolve(path.dirname(file), target), file);
  else fs.symlinkSync(target, file);
}
