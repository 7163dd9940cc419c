// Writes the server's description as OpenAPI 3.0 and JSON, for generators that read no 3.1.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { Converter } from "@apiture/openapi-down-convert";
import { load } from "js-yaml";

const [source, target] = process.argv.slice(2);
const description = new Converter(load(readFileSync(source, "utf8"))).convert();
delete description.info.summary; // the converter leaves it, and 3.0 has none
mkdirSync(new URL("node_modules/.generated/", import.meta.url), { recursive: true });
writeFileSync(target, JSON.stringify(description));
