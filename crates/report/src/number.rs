//! Numbers for people: three or four digits, thousands in groups, units that fit.

/// `value` with `digits` significant digits, thousands in groups, without exponent between 1e-4 and 1e15.
#[must_use]
pub fn sig(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs();
    if !(1e-4..1e15).contains(&magnitude) {
        return format!("{value:.*e}", digits - 1);
    }
    // The exponent after rounding: 9.996 with three digits is 10.0, not 10.00.
    let text = format!("{magnitude:.*e}", digits - 1);
    let exponent: i32 = text.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let decimals = digits as i32 - 1 - exponent;
    if decimals >= 0 {
        let fixed = format!("{value:.*}", decimals as usize);
        return group(&fixed);
    }
    let step = 10f64.powi(-decimals);
    group(&format!("{:.0}", (value / step).round() * step))
}

/// Commas between groups of three digits before the point.
#[must_use]
pub fn group(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let mut out = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A count, grouped.
#[must_use]
pub fn count(n: u64) -> String {
    group(&n.to_string())
}

/// `one thing`, `3 things`.
#[must_use]
pub fn plural(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{} {noun}s", count(n as u64)) }
}

/// Ratios this close to 1 print as 1.00, and are not reported as a difference, however exact they are.
const ALIKE: f64 = 0.005;

/// Whether a ratio is as good as 1.
#[must_use]
pub fn alike(ratio: f64) -> bool {
    (ratio - 1.0).abs() < ALIKE
}

/// A fraction as per cent with two digits.
#[must_use]
pub fn percent(fraction: f64) -> String {
    format!("{} %", sig(fraction * 100.0, 2))
}

/// A ratio, e.g. `1.20×`.
#[must_use]
pub fn times(ratio: f64) -> String {
    format!("{}×", sig(ratio, 3))
}

const SIZE_UNITS: [(&str, u32); 4] = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// A size in bytes, exactly: `64 KiB`, `1,500 B`.
#[must_use]
pub fn size(bytes: u64) -> String {
    let (unit, shift) = SIZE_UNITS
        .into_iter()
        .find(|(_, shift)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift))
        .unwrap_or(("B", 0));
    format!("{} {unit}", count(bytes >> shift))
}

/// A computed size with two digits: `2.1 KiB`.
#[must_use]
pub fn size_about(bytes: f64) -> String {
    let (unit, shift) =
        SIZE_UNITS.into_iter().find(|(_, shift)| bytes >= f64::from(1u32 << shift)).unwrap_or(("B", 0));
    let scaled = bytes / f64::from(1u32 << shift);
    let digits = if scaled >= 100.0 { 3 } else { 2 };
    format!("{} {unit}", sig(scaled, digits))
}

/// The displayed unit of values up to `largest`, and the factor to convert a value from the schema's unit. Page, screen and
/// Markdown use it alike.
#[must_use]
pub fn display_unit(unit: &str, largest: f64) -> (String, f64) {
    let (shown, scale) = match (unit, largest) {
        ("us", _) => ("µs", 1.0),
        ("MB/s", 1000.0..) => ("GB/s", 1e-3),
        ("1/s", 1e6..) => ("M/s", 1e-6),
        ("B", 10_240.0..) => ("KiB", 1.0 / 1024.0),
        (other, _) => (other, 1.0),
    };
    (shown.to_owned(), scale)
}

/// A value with its unit: `0.120 µs`, `11.2 GB/s`, `12.3 M/s`.
#[must_use]
pub fn value(v: f64, unit: &str) -> String {
    let (shown, scale) = display_unit(unit, v);
    match shown.as_str() {
        "1/s" => format!("{}/s", sig(v, 3)),
        _ => format!("{} {shown}", sig(v * scale, 3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_digits_never_become_fifteen() {
        let cases = [
            (0.123_456_789, "0.123"),
            (9.996, "10.0"),
            (0.099_96, "0.100"),
            (1.0, "1.00"),
            (123.4, "123"),
            (1_234.567, "1,230"),
            (999_999.0, "1,000,000"),
            (12_345_678.9, "12,300,000"),
            (0.000_012, "1.20e-5"),
            (-1_234.0, "-1,230"),
            (0.0, "0"),
        ];
        for (v, expected) in cases {
            assert_eq!(sig(v, 3), expected, "{v}");
        }
    }

    #[test]
    fn sizes_have_binary_prefixes_and_stay_exact() {
        let cases = [
            (0, "0 B"),
            (1, "1 B"),
            (1500, "1,500 B"),
            (4096, "4 KiB"),
            (3 << 20, "3 MiB"),
            (1 << 30, "1 GiB"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(size(bytes), expected);
        }
        assert_eq!(size_about(2150.0), "2.1 KiB");
        assert_eq!(size_about(0.4), "0.40 B");
    }

    #[test]
    fn units_for_people() {
        assert_eq!(value(0.12, "us"), "0.120 µs");
        assert_eq!(value(12_300_000.0, "1/s"), "12.3 M/s");
        assert_eq!(value(4_200.0, "1/s"), "4,200/s");
        assert_eq!(value(11_234.0, "MB/s"), "11.2 GB/s");
        assert_eq!(value(999.0, "MB/s"), "999 MB/s");
        assert_eq!(value(20_480.0, "B"), "20.0 KiB");
        assert_eq!(percent(0.031), "3.1 %");
        assert_eq!(plural(1, "curve"), "1 curve");
        assert_eq!(plural(1200, "curve"), "1,200 curves");
    }
}
