// Reads the blocks that explorer/payload.py packs.

const ARRAYS = {
  u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i2: Int16Array, f8: Float64Array,
};
const NO_EXPONENT = -32768;
// Powers of ten up to here are exact, so a quotient by them is rounded once.
const EXACT_POWERS = 22;

/** The bytes of a block, from the script element that holds it; async as inflating is. */
export async function inflated(id) {
  const element = document.getElementById(`block-${id}`);
  const packed = fromBase64(element.textContent);
  // Read once: let go of the text.
  element.remove();
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Columns of equally many rows, each decoded when it is first asked for. */
export class Block {
  constructor(bytes) {
    const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
    this.rows = header.rows;
    this.decoded = new Map();
    this.columns = new Map();
    let place = 4 + length;
    for (const column of header.columns) {
      const arrays = (column.arrays ?? []).map(([type, count]) => {
        const from = place;
        place += count * ARRAYS[type].BYTES_PER_ELEMENT;
        return () => joined(bytes, from, ARRAYS[type], count);
      });
      this.columns.set(column.name, { kind: column.kind, values: column.values, arrays });
    }
  }

  /** Whether there is such a column. */
  has(name) {
    return this.columns.has(name);
  }

  /** Of a column of codes: which of `values(name)` each row has. */
  codes(name) {
    const column = this.columns.get(name);
    const none = () => new Uint8Array(this.rows);
    return this.once(`codes ${name}`, () => column.arrays[0]?.() ?? none());
  }

  /** Of a column of codes: the different values, null among them where a row has none. */
  values(name) {
    return this.columns.get(name).values;
  }

  /** A column of any kind as numbers; not a number where there is none. */
  numbers(name) {
    return this.once(name, () => {
      const column = this.columns.get(name);
      if (column.kind === "decimal") return fromDecimals(...column.arrays.map((array) => array()));
      if (column.kind !== "codes") return column.arrays[0]();
      const values = Float64Array.from(column.values, (v) => (v === null ? NaN : Number(v)));
      const codes = column.arrays[0]?.() ?? null;
      if (codes === null) return new Float64Array(this.rows).fill(values[0] ?? NaN);
      // A loop: `from` with a function takes several times as long.
      const out = new Float64Array(codes.length);
      for (let i = 0; i < out.length; i += 1) out[i] = values[codes[i]];
      return out;
    });
  }

  /** Where each row's values begin in the column of lists `name`; one more than rows. */
  starts(name) {
    return this.once(`starts ${name}`, () => {
      const lengths = this.numbers(`#${name}`);
      const starts = new Uint32Array(lengths.length + 1);
      for (let i = 0; i < lengths.length; i += 1) starts[i + 1] = starts[i] + lengths[i];
      return starts;
    });
  }

  /** The values of a row in the column of lists `name`. */
  list(name, row) {
    const starts = this.starts(name);
    return Array.from(this.numbers(name).subarray(starts[row], starts[row + 1]));
  }

  once(key, make) {
    if (!this.decoded.has(key)) this.decoded.set(key, make());
    return this.decoded.get(key);
  }
}

/** Numbers whose first bytes all stand first. Typed arrays are little-endian wherever browsers run. */
function joined(bytes, from, Type, count) {
  const width = Type.BYTES_PER_ELEMENT;
  const out = new Uint8Array(count * width);
  for (let plane = 0; plane < width; plane += 1) {
    const start = from + plane * count;
    for (let i = 0; i < count; i += 1) out[i * width + plane] = bytes[start + i];
  }
  return new Type(out.buffer);
}

function fromDecimals(mantissas, exponents) {
  const out = new Float64Array(mantissas.length);
  for (let i = 0; i < out.length; i += 1) out[i] = decimal(mantissas[i], exponents[i]);
  return out;
}

function decimal(mantissa, exponent) {
  if (exponent === NO_EXPONENT) return NaN;
  if (exponent < 0 && exponent >= -EXACT_POWERS) return mantissa / 10 ** -exponent;
  return Number(`${mantissa}e${exponent}`);
}
