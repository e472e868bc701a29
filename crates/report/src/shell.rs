//! What every page has in common: one document that carries its style, scripts and data, and the policy that keeps it
//! from the network.

use base64::Engine as _;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use bench::schema::WriteError;

const STYLE: &str = include_str!("assets/page.css");
const CHART: &str = include_str!("assets/chart.js");
const PLOTS: &str = include_str!("assets/plots.js");
const TABLE: &str = include_str!("assets/table.js");

/// A page: its title, its body, and data under the names by which the scripts find them. `plot-data` must be among them.
pub fn document(title: &str, body: &Markup, data: &[(String, String)]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy(&[CHART, PLOTS, TABLE]));
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (body)
                footer { p { "Made by nicety. This page fetches nothing and holds its own data." } }
                @for (id, text) in data { (json(id, text)) }
                script { (PreEscaped(CHART)) }
                script { (PreEscaped(PLOTS)) }
                script { (PreEscaped(TABLE)) }
            }
        }
    };
    page.into_string()
}

/// No request is allowed at all; only the listed scripts run, so escaped text is not the only defence.
fn policy(scripts: &[&str]) -> String {
    let hashes: Vec<String> = scripts
        .iter()
        .map(|s| format!("'sha256-{}'", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(s))))
        .collect();
    format!(
        "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data: blob:; \
         base-uri 'none'; form-action 'none'",
        hashes.join(" ")
    )
}

/// JSON that can stand inside a script element whatever its strings are.
pub fn embedded<T: Serialize + ?Sized>(value: &T) -> Result<String, WriteError> {
    let text = serde_json::to_string(value).map_err(std::io::Error::from)?;
    Ok(text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"))
}

fn json(id: &str, text: &str) -> Markup {
    html! { script type="application/json" id=(id) { (PreEscaped(text)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_scripts_cannot_end_their_element() {
        for script in [CHART, PLOTS, TABLE] {
            assert!(!script.contains("</script") && !script.contains("<!--") && !script.contains('\r'));
        }
    }

    #[test]
    fn embedded_json_stays_json_and_has_no_markup() {
        let text = embedded(&["</script><!--", "a & b"]).expect("json");
        assert!(!text.contains(['<', '>', '&']), "{text}");
        let back: Vec<String> = serde_json::from_str(&text).expect("json");
        assert_eq!(back, ["</script><!--", "a & b"]);
    }
}
