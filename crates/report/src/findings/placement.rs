//! The cost of having the source or the sink in host memory rather than NIC memory.

use super::finding::{Finding, Noise, Tone, grouped, on_device, several_devices};
use crate::number::size;
use crate::series::{EXPERIMENTS, Series, apart, rank};
use crate::sides::{Lead, lead};
use results::schema::Measurement;
use results::variant::factor;

/// Cost of one placement against the base at one size; above 1 is worse than the base.
#[derive(Debug, PartialEq)]
enum Cost {
    /// A significant lead of this size.
    Told(Lead),
    /// No difference that the data carries.
    Unseen,
    /// No intervals.
    Unknown,
}

/// One finding for each experiment and device that has more than one placement.
pub(super) fn cost(all: &[Series<'_>], noise: &Noise<'_>) -> Vec<Finding> {
    // A message rate repeats the bandwidth of its size.
    let rate_again = |s: &Series<'_>| {
        s.unit == "1/s" && all.iter().any(|o| (o.experiment, o.unit) == (s.experiment, "MB/s"))
    };
    let placed = all.iter().filter(|s| s.placement().is_some() && !rate_again(s));
    grouped(placed, |s| (rank(EXPERIMENTS, s.experiment), s.experiment, s.metric, s.device))
        .into_iter()
        .filter_map(|group| of_group(&group, noise, several_devices(all)))
        .collect()
}

fn of_group(group: &[&Series<'_>], noise: &Noise<'_>, several: bool) -> Option<Finding> {
    let mut items = Vec::new();
    let mut worst: Option<(f64, String)> = None;
    let others = |s: &Series<'_>| s.variant.without(&[factor::SOURCE, factor::SINK]);
    for family in grouped(group.iter().copied(), others) {
        let (base, rest) = family.split_first()?;
        let mut parts = Vec::new();
        let from = base.placement().unwrap_or_default();
        for s in rest {
            let costs = told_at(base, s, noise.on(s.device));
            for (at, cost) in &costs {
                let Cost::Told(told) = cost else { continue };
                if worst.as_ref().is_none_or(|(ratio, _)| told.ratio > *ratio) {
                    let what = format!("{} at {}: {} worse than {from}", s.name(), size(*at), told.text());
                    worst = Some((told.ratio, what));
                }
            }
            parts.extend(part(s, &costs));
        }
        if !parts.is_empty() {
            let op = if base.op().is_empty() { "all" } else { base.op() };
            items.push(format!("{op}, against {from}: {}", parts.join("; ")));
        }
    }
    let s = *group.first()?;
    let topic = format!("What placement costs: {}{}", s.what(), on_device(s, several));
    let (tone, text) = match worst {
        None if items.is_empty() => return None,
        Some((ratio, what)) if ratio > 1.0 => (Tone::Fact, format!("Largest penalty: {what}.")),
        Some(_) => (Tone::Fact, "No placement is worse than the first.".to_owned()),
        None => (Tone::CannotTell, "No difference that the intervals carry.".to_owned()),
    };
    Some(Finding::new(tone, topic, text).with(items))
}

/// Costs at the smallest and the largest common size, and the greatest cost between them.
fn told_at(base: &Series<'_>, s: &Series<'_>, noise: f64) -> Vec<(u64, Cost)> {
    let common = s.points.iter().filter_map(|r| Some((*r, base.at(r.size_bytes)?)));
    let mut all: Vec<(u64, Cost)> =
        common.filter_map(|(r, b)| Some((r.size_bytes, against(b, r, noise)?))).collect();
    let told = all.iter().filter_map(|(at, cost)| match cost {
        Cost::Told(told) => Some((*at, told.ratio)),
        Cost::Unseen | Cost::Unknown => None,
    });
    let most = told.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at);
    let ends = [all.first().map(|(at, _)| *at), all.last().map(|(at, _)| *at), most];
    all.retain(|(at, _)| ends.contains(&Some(*at)));
    all
}

fn against(base: &Measurement, r: &Measurement, noise: f64) -> Option<Cost> {
    if base.median <= 0.0 || r.median <= 0.0 {
        return None;
    }
    let worse = (r.median > base.median) != r.higher_is_better();
    let told = if worse { lead(base, r, noise) } else { lead(r, base, noise).map(Lead::inverted) };
    Some(match (told, apart(base, r)) {
        (Some(told), _) => Cost::Told(told),
        (None, Some(_)) => Cost::Unseen,
        (None, None) => Cost::Unknown,
    })
}

fn part(s: &Series<'_>, costs: &[(u64, Cost)]) -> Option<String> {
    let told: Vec<String> = costs
        .iter()
        .map(|(at, cost)| match cost {
            Cost::Told(told) => format!("{} at {}", told.text(), size(*at)),
            Cost::Unseen => format!("no difference seen at {}", size(*at)),
            Cost::Unknown => format!("cannot tell at {} (no interval)", size(*at)),
        })
        .collect();
    (!told.is_empty()).then(|| format!("{} {}", s.placement().unwrap_or_default(), told.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{point, run};
    use super::*;
    use crate::series::series;
    use results::schema::{AaNoise, ClockKind, Environment};

    fn noisy(floor: f64) -> Environment {
        let aa_noise = Some(AaNoise { floor, ratio: 1.0, launches: 6 });
        Environment { aa_noise, ..Environment::default() }
    }

    const NIC: &str = "op=write,source=nic,sink=nic";
    const HOST: &str = "op=write,source=nic,sink=host";

    /// Goal: a difference is reported even if both ends are equal. Method: curves that diverge in the middle.
    #[test]
    fn a_difference_between_the_ends_is_told() {
        let curve = |at: &str, middle: f64| {
            [(1, 1.0), (512, middle), (4096, 9.0)].map(|(size, us)| point("latency", at, size, us)).to_vec()
        };
        let found = cost(
            &series(&[run([curve(NIC, 1.0), curve(HOST, 4.3)].concat())]),
            &Noise(&Environment::default()),
        );
        assert_eq!(found[0].tone, Tone::Fact);
        assert!(found[0].text.contains("write (nic → host) at 512 B: 4.30×"), "{}", found[0].text);
        let told = "no difference seen at 1 B, 4.30× at 512 B, no difference seen at 4 KiB";
        assert!(found[0].items[0].contains(told), "{}", found[0].items[0]);
    }

    #[test]
    fn the_cost_is_told_at_both_ends_and_none_where_intervals_overlap() {
        let run = run(vec![
            point("latency", NIC, 8, 0.1),
            point("latency", NIC, 1024, 1.0),
            point("latency", HOST, 8, 0.18),
            point("latency", HOST, 1024, 1.005),
        ]);
        let found = cost(&series(&[run]), &Noise(&Environment::default()));
        assert_eq!(found[0].topic, "What placement costs: one-way latency");
        assert_eq!(found[0].text, "Largest penalty: write (nic → host) at 8 B: 1.80× worse than nic → nic.");
        assert_eq!(
            found[0].items,
            ["write, against nic → nic: nic → host 1.80× at 8 B, no difference seen at 1 KiB"]
        );
    }

    #[test]
    fn rates_are_worse_when_lower_and_the_noise_floor_counts() {
        let at = |median| {
            let all = run(vec![point("bandwidth", NIC, 8, 1000.0), point("bandwidth", HOST, 8, median)]);
            cost(&series(&[all]), &Noise(&noisy(0.3)))[0].clone()
        };
        assert!(at(500.0).text.contains("2.00× worse"), "{}", at(500.0).text);
        assert_eq!(at(800.0).tone, Tone::CannotTell);
    }

    /// Goal: exact times need no interval and no noise floor to differ, and equal ones do not differ.
    #[test]
    fn virtual_times_differ_where_they_do() {
        let at = |median| {
            let mut all = run(vec![point("latency", NIC, 8, 1.0), point("latency", HOST, 8, median)]);
            for r in &mut all.results {
                r.clock = ClockKind::Virtual;
                r.ci95 = Some([r.median; 2]);
            }
            cost(&series(&[all]), &Noise(&noisy(0.17)))[0].clone()
        };
        assert!(at(1.08).text.contains("1.08× worse"), "{}", at(1.08).text);
        assert!(
            !at(1.001).text.contains('×') && at(1.001).items[0].contains("no difference"),
            "{:?}",
            at(1.001)
        );
    }

    #[test]
    fn without_intervals_one_cannot_tell() {
        let mut all = run(vec![point("latency", NIC, 8, 1.0), point("latency", HOST, 8, 3.0)]);
        all.results[0].ci95 = None;
        let found = cost(&series(&[all]), &Noise(&Environment::default()));
        assert_eq!(found[0].tone, Tone::CannotTell);
        assert!(found[0].items[0].contains("cannot tell at 8 B"), "{}", found[0].items[0]);
    }
}
