// Numbers into text, as web/report.html writes them.

const minus = text => text.replace(/-/g, '−');
const superscript = n => String(n).replace(/./g, c => c === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[c]);

// Thousands apart, in what is before the point.
const grouped = text => text.replace(/^-?\d+/, n => n.replace(/\B(?=(\d{3})+$)/g, '\u202f'));

export function digits(v, precision = 4) {
  if (v === null || v === undefined || Number.isNaN(v)) return '–';
  if (!Number.isFinite(v)) return v < 0 ? '−∞' : '∞';
  if (v === 0) return '0';
  const exponent = Math.floor(Math.log10(Math.abs(v)));
  if (exponent < -4 || exponent > 6) {
    const [head, tail] = v.toExponential(Math.max(0, precision - 2)).split('e');
    return minus(head) + '·10' + superscript(Number(tail));
  }
  const text = exponent >= precision ? v.toFixed(0) : v.toPrecision(precision);
  return minus(grouped(text.includes('.') ? text.replace(/0+$/, '').replace(/\.$/, '') : text));
}

export const fixed = (v, places) => Number.isFinite(v) ? minus(grouped(v.toFixed(places))) : digits(v);
export const whole = n => grouped(String(n));
export const plural = (n, what) => `${whole(n)} ${what}${n === 1 ? '' : 's'}`;
export const percent = v => Number.isFinite(v) ? (v * 100).toPrecision(v < .0995 ? 2 : 3).replace(/^(\d+)\.0+$/, '$1') + '\u202f%' : '–';
// Nearly all of it is not all of it.
const placesOf = v => Math.abs(v) < .0995 ? 1 : v < -.99 && v > -1 ? 2 : 0;
export const signedPercent = v => Number.isFinite(v) ? (v > 0 ? '+' : '') + minus(grouped((v * 100).toFixed(placesOf(v)))) + '\u202f%' : '–';

// How many times more or less: ×3.1, ÷1.4.
export function times(gain) {
  if (!Number.isFinite(gain)) return gain < 0 ? '÷∞' : gain > 0 ? '×∞' : '–';
  const factor = digits(Math.exp(Math.abs(gain)), 3);
  return (gain < 0 ? '÷' : '×') + (factor === '1' ? '1.00' : factor); // a little more or less, not just as much
}

export function size(bytes) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let i = 0, v = bytes;
  while (v >= 999.5 && i < units.length - 1) [v, i] = [v / 1000, i + 1];
  return `${i && v < 9.95 ? v.toFixed(1) : Math.round(v)}\u202f${units[i]}`;
}
