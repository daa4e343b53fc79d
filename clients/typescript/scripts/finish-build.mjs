// The package is of the kind `module`; this tells Node that what lies beside `index.js` of the other build is not.
import { writeFileSync } from "node:fs";

writeFileSync(new URL("../dist/cjs/package.json", import.meta.url), '{\n  "type": "commonjs"\n}\n');
