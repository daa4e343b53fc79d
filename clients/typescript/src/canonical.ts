/**
 * Canonical JSON: one value has one text, in every language.
 *
 * Members are sorted by UTF-16 code units, there is no white space, and strings are written as RFC 8785 writes them. Numbers are
 * written in ECMAScript's notation from their exact decimal value, so `1`, `1.0` and `1e0` are one value and 9007199254740993
 * is not 9007199254740992. Whatever is out of bounds, ambiguous or not JSON is refused, never repaired. The parser is our own:
 * `JSON.parse` keeps the last of two members of one name and rounds numbers.
 */

/** The most bytes of a text, as UTF-8. A sidecar takes 256 KiB of arguments unless it is configured otherwise. */
export const MAX_BYTES = 1024 * 1024;

/** The deepest nesting of objects and arrays; the outermost one is the first level, scalars are none. */
export const MAX_DEPTH = 64;

const MAX_DIGITS = 800;
const MAX_EXPONENT = 400;
const MAX_PLAIN_DIGITS = 21;
const MAX_LEADING_ZEROS = 6;

const MESSAGES = {
  TOO_LARGE: "the text is longer than allowed",
  INVALID_UTF8: "not UTF-8",
  BYTE_ORDER_MARK: "a byte order mark at the start",
  UNEXPECTED_END: "the text ends too early",
  UNEXPECTED_CHARACTER: "a character that JSON does not allow here",
  TRAILING_TEXT: "more text after the value",
  NOT_AN_OBJECT: "an object is needed at the top",
  TOO_DEEP: `nested deeper than ${MAX_DEPTH} levels`,
  DUPLICATE_MEMBER: "a second member of the same name",
  UNPAIRED_SURROGATE: "an unpaired surrogate in a string",
  INVALID_ESCAPE: "an escape that JSON does not have",
  CONTROL_CHARACTER: "an unescaped control character in a string",
  INVALID_NUMBER: "not a number as JSON writes one",
  TOO_MANY_DIGITS: `a number of more than ${MAX_DIGITS} digits`,
  EXPONENT_OUT_OF_RANGE: `an exponent beyond \u00b1${MAX_EXPONENT}`,
} as const;

/** The stable name of a problem, the same as the sidecar's. */
export type ProblemCode = keyof typeof MESSAGES;

/** Limits that may be lowered. */
export interface Limits {
  /** The most bytes of UTF-8: at most, and where nothing is said, 1 MiB. */
  readonly maxBytes?: number;
}

/** A text that is refused: what is wrong, and where. */
export class CanonicalError extends Error {
  override readonly name = "CanonicalError";

  constructor(
    /** What is wrong: `DUPLICATE_MEMBER`, `TOO_DEEP` and so on. */
    readonly code: ProblemCode,
    /** The JSON Pointer (RFC 6901) of the value with the problem; empty: the whole text. */
    readonly pointer: string,
    /** Where the reader stood, in bytes of UTF-8 from the start of the text. */
    readonly offset: number,
  ) {
    super(`${MESSAGES[code]} (at byte ${offset}${pointer === "" ? "" : `, in ${ascii(pointer)}`})`);
  }
}

/**
 * The canonical text of a JSON object; the empty text means `{}`.
 *
 * @throws {CanonicalError} for whatever is refused.
 */
export function canonicalJson(text: string | Uint8Array, limits: Limits = {}): string {
  const most = Math.min(limits.maxBytes ?? MAX_BYTES, MAX_BYTES);
  if (typeof text === "string") {
    // Code units are no more than bytes; of what is long the bytes need not be counted.
    if (text.length > most) {
      throw new CanonicalError("TOO_LARGE", "", most);
    }
    const unpaired = firstUnpaired(text);
    if (unpaired < text.length) {
      const before = text.slice(0, unpaired);
      throw brokenOff(before, Buffer.byteLength(before));
    }
    if (Buffer.byteLength(text) > most) {
      throw new CanonicalError("TOO_LARGE", "", most);
    }
    return canonicalise(text);
  }
  if (!(text instanceof Uint8Array)) {
    throw new TypeError("canonicalJson takes the text of a JSON object, as a string or as bytes");
  }
  if (text.length > most) {
    throw new CanonicalError("TOO_LARGE", "", most);
  }
  const valid = validUpTo(text);
  const before = new TextDecoder("utf-8", { ignoreBOM: true }).decode(text.subarray(0, valid));
  if (valid < text.length) {
    throw brokenOff(before, valid);
  }
  return canonicalise(before);
}

/** A string as RFC 8785 writes it. An unpaired surrogate is refused: no UTF-8 can carry it. */
export function quoted(text: string): string {
  if (firstUnpaired(text) < text.length) {
    throw new RangeError("a text with an unpaired surrogate has no UTF-8");
  }
  return quote(text);
}

/** A problem on its way up; the path to it is collected from the inside out. */
class Fault {
  readonly trail: string[] = [];

  constructor(
    readonly code: ProblemCode,
    readonly at: number,
  ) {}

  pointer(): string {
    const steps = this.trail.reverse().map((step) => `/${step.replaceAll("~", "~0").replaceAll("/", "~1")}`);
    return steps.join("");
  }
}

function canonicalise(text: string): string {
  if (text === "") {
    return "{}";
  }
  try {
    return new Reader(text).document();
  } catch (fault) {
    if (fault instanceof Fault) {
      throw new CanonicalError(fault.code, fault.pointer(), Buffer.byteLength(text.slice(0, fault.at)));
    }
    throw fault;
  }
}

/** What is wrong with a text that is UTF-8 up to `offset` only: an earlier problem, or that. */
function brokenOff(before: string, offset: number): CanonicalError {
  try {
    canonicalise(before);
  } catch (refusal) {
    if (!(refusal instanceof CanonicalError) || refusal.offset < offset) {
      return refusal as CanonicalError;
    }
    return new CanonicalError("INVALID_UTF8", refusal.pointer, offset);
  }
  return new CanonicalError("INVALID_UTF8", "", offset);
}

/** Where the first surrogate without its other half stands; the length if there is none. */
function firstUnpaired(text: string): number {
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit >= 0xd800 && unit < 0xe000) {
      const next = text.charCodeAt(at + 1);
      if (unit >= 0xdc00 || !(next >= 0xdc00 && next < 0xe000)) {
        return at;
      }
      at += 1;
    }
  }
  return text.length;
}

/** Up to where the bytes are UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing beyond U+10FFFF. */
function validUpTo(bytes: Uint8Array): number {
  const byte = (at: number): number => bytes[at] ?? 0;
  const continues = (at: number, least = 0x80, most = 0xbf): boolean => byte(at) >= least && byte(at) <= most;
  let at = 0;
  while (at < bytes.length) {
    const first = byte(at);
    if (first < 0x80) {
      at += 1;
    } else if (first >= 0xc2 && first <= 0xdf && continues(at + 1)) {
      at += 2;
    } else if (
      first >= 0xe0 &&
      first <= 0xef &&
      continues(at + 1, first === 0xe0 ? 0xa0 : 0x80, first === 0xed ? 0x9f : 0xbf) &&
      continues(at + 2)
    ) {
      at += 3;
    } else if (
      first >= 0xf0 &&
      first <= 0xf4 &&
      continues(at + 1, first === 0xf0 ? 0x90 : 0x80, first === 0xf4 ? 0x8f : 0xbf) &&
      continues(at + 2) &&
      continues(at + 3)
    ) {
      at += 4;
    } else {
      break;
    }
  }
  return at;
}

const WRITTEN: ReadonlyMap<string, string> = new Map([
  ['"', '\\"'],
  ["\\", "\\\\"],
  ["\b", "\\b"],
  ["\t", "\\t"],
  ["\n", "\\n"],
  ["\f", "\\f"],
  ["\r", "\\r"],
]);
const ESCAPES: ReadonlyMap<string, string> = new Map([
  ['"', '"'],
  ["\\", "\\"],
  ["/", "/"],
  ["b", "\b"],
  ["f", "\f"],
  ["n", "\n"],
  ["r", "\r"],
  ["t", "\t"],
]);

function quote(text: string): string {
  const written = text.replace(
    /["\\\u0000-\u001f]/g,
    (character) => WRITTEN.get(character) ?? unicodeEscape(character),
  );
  return `"${written}"`;
}

function unicodeEscape(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/** For a message: in quotes, and nothing in it that a terminal would interpret. */
function ascii(text: string): string {
  return `"${text.replace(/[^ !#-[\]-~]/g, unicodeEscape)}"`;
}

interface Member {
  readonly name: string;
  readonly value: string;
  readonly source: number;
}

class Reader {
  private at = 0;

  constructor(private readonly text: string) {}

  document(): string {
    if (this.text.charCodeAt(0) === 0xfeff) {
      throw new Fault("BYTE_ORDER_MARK", 0);
    }
    this.skipWhiteSpace();
    const first = this.peek();
    if (first !== "" && '["-0123456789tfn'.includes(first)) {
      throw new Fault("NOT_AN_OBJECT", this.at);
    }
    const value = this.value(0);
    this.skipWhiteSpace();
    if (this.at < this.text.length) {
      throw new Fault("TRAILING_TEXT", this.at);
    }
    return value;
  }

  /** Reads one value that stands inside `depth` objects and arrays, and writes it. */
  private value(depth: number): string {
    switch (this.peek()) {
      case '"':
        return quote(this.string());
      case "{":
        return this.object(depth + 1);
      case "[":
        return this.array(depth + 1);
      case "t":
        return this.word("true");
      case "f":
        return this.word("false");
      case "n":
        return this.word("null");
      case "":
        throw this.unexpected();
      default:
        if ("-0123456789".includes(this.peek())) {
          return this.number();
        }
        throw this.unexpected();
    }
  }

  private object(depth: number): string {
    this.open(depth);
    if (this.take("}")) {
      return "{}";
    }
    const members: Member[] = [];
    for (;;) {
      members.push(this.member(depth));
      this.skipWhiteSpace();
      if (this.take("}")) {
        break;
      }
      this.need(",");
      this.skipWhiteSpace();
    }
    // Strings are compared by UTF-16 code units.
    members.sort((left, right) =>
      left.name < right.name ? -1 : left.name > right.name ? 1 : left.source - right.source,
    );
    for (const [index, second] of members.entries()) {
      if (index > 0 && members[index - 1]?.name === second.name) {
        const fault = new Fault("DUPLICATE_MEMBER", second.source);
        fault.trail.push(second.name);
        throw fault;
      }
    }
    return `{${members.map((member) => `${quote(member.name)}:${member.value}`).join(",")}}`;
  }

  private member(depth: number): Member {
    const source = this.at;
    if (this.peek() !== '"') {
      throw this.unexpected();
    }
    const name = this.string();
    this.skipWhiteSpace();
    this.need(":");
    this.skipWhiteSpace();
    return { name, source, value: this.within(name, () => this.value(depth)) };
  }

  private array(depth: number): string {
    this.open(depth);
    if (this.take("]")) {
      return "[]";
    }
    const items: string[] = [];
    for (;;) {
      items.push(this.within(String(items.length), () => this.value(depth)));
      this.skipWhiteSpace();
      if (this.take("]")) {
        break;
      }
      this.need(",");
      this.skipWhiteSpace();
    }
    return `[${items.join(",")}]`;
  }

  private within(step: string, read: () => string): string {
    try {
      return read();
    } catch (fault) {
      if (fault instanceof Fault) {
        fault.trail.push(step);
      }
      throw fault;
    }
  }

  /** Reads a string, and says what it stands for. */
  private string(): string {
    this.at += 1;
    const pieces: string[] = [];
    for (;;) {
      pieces.push(this.run(/[^"\\\u0000-\u001f]*/y));
      const character = this.peek();
      if (character === '"') {
        this.at += 1;
        return pieces.join("");
      }
      if (character === "\\") {
        pieces.push(this.escape());
      } else {
        throw new Fault(character === "" ? "UNEXPECTED_END" : "CONTROL_CHARACTER", this.at);
      }
    }
  }

  private escape(): string {
    const start = this.at;
    const kind = this.text.charAt(start + 1);
    if (kind === "") {
      throw new Fault("UNEXPECTED_END", this.text.length);
    }
    this.at += 2;
    if (kind === "u") {
      return this.unicodeEscape(start);
    }
    const character = ESCAPES.get(kind);
    if (character === undefined) {
      throw new Fault("INVALID_ESCAPE", start);
    }
    return character;
  }

  private unicodeEscape(start: number): string {
    const code = this.fourDigits(start);
    if (code >= 0xd800 && code < 0xdc00) {
      const following = this.text.slice(this.at, this.at + 2);
      if (following === "" || (following === "\\" && this.at + 1 === this.text.length)) {
        throw new Fault("UNEXPECTED_END", this.text.length);
      }
      if (following !== "\\u") {
        throw new Fault("UNPAIRED_SURROGATE", start);
      }
      const second = this.at;
      this.at += 2;
      const low = this.fourDigits(second);
      if (low < 0xdc00 || low >= 0xe000) {
        throw new Fault("UNPAIRED_SURROGATE", start);
      }
      return String.fromCharCode(code, low);
    }
    if (code >= 0xdc00 && code < 0xe000) {
      throw new Fault("UNPAIRED_SURROGATE", start);
    }
    return String.fromCharCode(code);
  }

  private fourDigits(start: number): number {
    for (let place = this.at; place < this.at + 4; place += 1) {
      const digit = this.text.charAt(place);
      if (digit === "") {
        throw new Fault("UNEXPECTED_END", this.text.length);
      }
      if (!/[0-9a-fA-F]/.test(digit)) {
        throw new Fault("INVALID_ESCAPE", start);
      }
    }
    this.at += 4;
    return Number.parseInt(this.text.slice(this.at - 4, this.at), 16);
  }

  private number(): string {
    const start = this.at;
    const negative = this.take("-");
    const whole = this.digits();
    if (whole.length > 1 && whole.startsWith("0")) {
      throw new Fault("INVALID_NUMBER", start);
    }
    const fraction = this.take(".") ? this.digits() : "";
    if (whole.length + fraction.length > MAX_DIGITS) {
      throw new Fault("TOO_MANY_DIGITS", start);
    }
    const exponent = this.take("e") || this.take("E") ? this.exponent(start) : 0;
    return decimal(negative, whole, fraction, exponent);
  }

  private exponent(start: number): number {
    const negative = this.take("-");
    if (!negative) {
      this.take("+");
    }
    const digits = this.digits();
    if (digits.length > MAX_DIGITS) {
      throw new Fault("TOO_MANY_DIGITS", start);
    }
    const size = Number(digits);
    if (size > MAX_EXPONENT) {
      throw new Fault("EXPONENT_OUT_OF_RANGE", start);
    }
    return negative ? -size : size;
  }

  private digits(): string {
    const found = this.run(/[0-9]*/y);
    if (found === "") {
      throw new Fault(this.at >= this.text.length ? "UNEXPECTED_END" : "INVALID_NUMBER", this.at);
    }
    return found;
  }

  private word(word: string): string {
    for (const character of word) {
      this.need(character);
    }
    return word;
  }

  private open(depth: number): void {
    if (depth > MAX_DEPTH) {
      throw new Fault("TOO_DEEP", this.at);
    }
    this.at += 1;
    this.skipWhiteSpace();
  }

  private run(pattern: RegExp): string {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0] ?? "";
    this.at += found.length;
    return found;
  }

  private skipWhiteSpace(): void {
    this.run(/[ \t\n\r]*/y);
  }

  private peek(): string {
    return this.text.charAt(this.at);
  }

  private take(character: string): boolean {
    const found = this.peek() === character;
    this.at += found ? 1 : 0;
    return found;
  }

  private need(character: string): void {
    if (!this.take(character)) {
      throw this.unexpected();
    }
  }

  private unexpected(): Fault {
    return new Fault(this.at >= this.text.length ? "UNEXPECTED_END" : "UNEXPECTED_CHARACTER", this.at);
  }
}

/** The number ±`whole`.`fraction` times ten to the `exponent`, exactly, in ECMAScript's notation. */
function decimal(negative: boolean, whole: string, fraction: string, exponent: number): string {
  const significant = (whole + fraction).replace(/^0+/, "");
  // The value is 0.DIGITS times ten to the `point`.
  const point = significant.length - fraction.length + exponent;
  const digits = withoutZerosAtEnd(significant);
  if (digits === "") {
    return "0";
  }
  const sign = negative ? "-" : "";
  if (point >= 1 && point <= MAX_PLAIN_DIGITS) {
    return digits.length <= point
      ? sign + digits.padEnd(point, "0")
      : `${sign}${digits.slice(0, point)}.${digits.slice(point)}`;
  }
  if (point >= 1 - MAX_LEADING_ZEROS && point <= 0) {
    return `${sign}0.${"0".repeat(-point)}${digits}`;
  }
  const rest = digits.length > 1 ? `.${digits.slice(1)}` : "";
  return `${sign}${digits.charAt(0)}${rest}e${point > 0 ? "+" : "-"}${Math.abs(point - 1)}`;
}

/** By hand: a pattern for it takes quadratic time. */
function withoutZerosAtEnd(digits: string): string {
  let end = digits.length;
  while (end > 0 && digits.charAt(end - 1) === "0") {
    end -= 1;
  }
  return digits.slice(0, end);
}
