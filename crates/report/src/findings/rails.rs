//! Throughput of several rails, compared with the bound by the multirail paper's equations.

use super::finding::{Finding, Tone, grouped, known, on_device, several_devices};
use crate::bounds::{Rates, Term};
use crate::number::sig;
use crate::series::Series;
use results::schema::{DeviceInfo, Run};
use results::variant::factor;

/// Bits per byte.
const BITS: f64 = 8.0;

/// One finding for each device whose rails were measured with streams.
pub(super) fn peaks(all: &[Series<'_>], run: &Run) -> Vec<Finding> {
    let streams = all.iter().filter(|s| s.experiment == "rail-bandwidth");
    grouped(streams, |s| s.device)
        .into_iter()
        .filter_map(|group| {
            let peak = |engine: &str| {
                let own = group.iter().find(|s| s.variant.is(factor::ENGINE, engine))?;
                own.points.iter().copied().max_by(|a, b| a.median.total_cmp(&b.median))
            };
            let engines = [
                ("threads", "with a thread for each"),
                ("serial", "with one thread"),
                ("single", "over one of them"),
            ];
            let found: Vec<String> = engines
                .into_iter()
                .filter_map(|(engine, how)| Some(format!("{} {how}", known(peak(engine)?))))
                .collect();
            let device = group.first()?;
            let info = run.environment.devices.iter().find(|info| info.name == device.device);
            let count = info.map_or(1, |info| info.rails.len().max(1));
            // Two channels over a single rail.
            let what =
                if count == 1 { "2 channels over 1 rail".to_owned() } else { format!("{count} rails") };
            let topic = format!("Rails{}", on_device(device, several_devices(all)));
            let text = format!(
                "At most, over {what}: {}. {}",
                super::finding::list(&found),
                bounds(run, info, count.max(2))
            );
            Some(Finding::new(Tone::Fact, topic, text))
        })
        .collect()
}

/// The bounds in words.
fn bounds(run: &Run, device: Option<&DeviceInfo>, rails: usize) -> String {
    let given =
        run.parameters.iter().find(|p| p.key == "rail-rate").and_then(|p| p.value.parse::<f64>().ok());
    let given = given.filter(|rate| *rate > 0.0).map(|rate| Rates::of_link(rate / BITS));
    let stored = || device?.rail_rates.map(|rates| Rates { card: rates.card, ..Rates::of_link(rates.link) });
    let Some(rates) = given.or_else(stored) else {
        return "What a rail could carry is not known; --set rail-rate says it.".to_owned();
    };
    let of = |term| sig(rates.bound(term, rails), 3);
    let (cards, ports, channels) = (of(Term::Cards), of(Term::Ports), of(Term::Channels));
    let bus =
        if rates.card.is_finite() { format!(" on buses of {}", sig(rates.card, 3)) } else { String::new() };
    format!(
        "Links of {} MB/s{bus} could carry {cards} with a card each (equation 1), {ports} as ports of one card (2), {channels} \
         over one of them (3).",
        sig(rates.link, 3)
    )
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{point, run};
    use super::*;
    use crate::series::series;
    use results::schema::{Origin, Parameter, RailRates};

    fn found(device: &str, rails: &[&str], rates: Option<RailRates>, rate: &str) -> String {
        let at = |engine: &str, size, value| {
            let variant = format!("engine={engine}");
            results::schema::Measurement {
                device: device.to_owned(),
                ..point("rail-bandwidth", &variant, size, value)
            }
        };
        let results = vec![
            at("single", 1024, 100.0),
            at("single", 4096, 120.0),
            at("serial", 4096, 200.0),
            at("threads", 4096, 230.0),
        ];
        let mut run = run(results);
        let (key, value) = ("rail-rate".to_owned(), rate.to_owned());
        run.parameters.push(Parameter { key, value, unit: None, origin: Origin::Flag });
        let rails = rails.iter().map(|&name| name.to_owned()).collect();
        run.environment.devices =
            vec![DeviceInfo { name: device.to_owned(), rails, rail_rates: rates, ..DeviceInfo::default() }];
        let found = peaks(&series(std::slice::from_ref(&run)), &run);
        assert_eq!(found.len(), 1);
        found[0].text.clone()
    }

    #[test]
    fn peaks_stand_beside_the_bounds() {
        let names = ["iwarp@10.0.0.1", "iwarp@10.1.0.1"];
        let real = found("rails(iwarp@10.0.0.1,iwarp@10.1.0.1)", &names, None, "1000");
        for part in [
            "over 2 rails",
            "230 MB/s (228..232) with a thread for each",
            "120 MB/s (119..121) over one",
            "Links of 125 MB/s could carry 250",
        ] {
            assert!(real.contains(part), "no {part} in: {real}");
        }
        let rates = Some(RailRates { link: 2000.0, card: 2000.0 });
        let card = found("model:card", &["model:card@0", "model:card@1"], rates, "0");
        assert!(card.contains("on buses of 2,000 could carry 4,000 with a card each"), "{card}");
        let unknown = found("shm", &["shm"], None, "0");
        assert!(
            unknown.contains("2 channels over 1 rail") && unknown.contains("--set rail-rate"),
            "{unknown}"
        );
    }
}
