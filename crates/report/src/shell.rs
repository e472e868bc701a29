//! The common frame of every page: one document with its style, scripts and data, and the policy that denies it
//! network access.

use base64::Engine as _;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::svg::symbols;
use results::schema::WriteError;

const STYLE: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/page.js");

/// A page: its title, its body, and data under the names by which the script finds them.
pub fn document(title: &str, body: &Markup, data: &[(String, String)]) -> String {
    document_with(title, body, data, "", SCRIPT)
}

/// As [`document`], with further styles and with another script.
pub(crate) fn document_with(
    title: &str,
    body: &Markup,
    data: &[(String, String)],
    styles: &str,
    script: &str,
) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy(script));
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(styles)) }
            }
            body {
                (symbols())
                (body)
                footer { p { "Made by nicety. This page fetches nothing and holds its own data." } }
                @for (id, text) in data { (json(id, text)) }
                script { (PreEscaped(script)) }
            }
        }
    };
    page.into_string()
}

/// No request is allowed at all; only our own script runs, so escaped text is not the only defence.
fn policy(script: &str) -> String {
    let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script));
    format!(
        "default-src 'none'; script-src 'sha256-{hash}'; style-src 'unsafe-inline'; img-src data: blob:; \
         base-uri 'none'; form-action 'none'"
    )
}

/// Numbers with six significant digits, more than any measurement here has, in half the room.
struct SixDigits;

impl serde_json::ser::Formatter for SixDigits {
    fn write_f64<W: std::io::Write + ?Sized>(&mut self, to: &mut W, value: f64) -> std::io::Result<()> {
        let short = format!("{value:.5e}").parse().unwrap_or(value);
        write!(to, "{short:?}")
    }
}

/// JSON that can be embedded in a script element whatever its strings are; numbers have six digits.
pub fn embedded<T: Serialize + ?Sized>(value: &T) -> Result<String, WriteError> {
    let mut text = Vec::new();
    value
        .serialize(&mut serde_json::Serializer::with_formatter(&mut text, SixDigits))
        .map_err(std::io::Error::from)?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"))
}

fn json(id: &str, text: &str) -> Markup {
    html! { script type="application/json" id=(id) { (PreEscaped(text)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_script_cannot_end_its_element() {
        assert!(!SCRIPT.contains("</script") && !SCRIPT.contains("<!--") && !SCRIPT.contains('\r'));
    }

    #[test]
    fn numbers_have_six_digits() {
        let text = embedded(&[0.145_238_095_238_095, 1e-9 / 3.0, 12_345_678.9, 0.0, 5.0]).expect("json");
        assert_eq!(text, "[0.145238,3.33333e-10,12345700.0,0.0,5.0]");
    }

    #[test]
    fn embedded_json_stays_json_and_has_no_markup() {
        let text = embedded(&["</script><!--", "a & b"]).expect("json");
        assert!(!text.contains(['<', '>', '&']), "{text}");
        let back: Vec<String> = serde_json::from_str(&text).expect("json");
        assert_eq!(back, ["</script><!--", "a & b"]);
    }
}
