//! [`Selection`]: which records a reader wants to see.

use crate::job::Process;
use crate::read::{Class, Record, What};

/// Which records to show. The default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// From this time on, in picoseconds of the job's axis.
    pub from_ps: u64,
    /// Until this time.
    pub to_ps: Option<u64>,
    /// Only this queue pair, by its number.
    pub qp: Option<u32>,
    /// Only this rank.
    pub rank: Option<u32>,
    /// Only failures.
    pub is_failures: bool,
    /// Only the latest, at most this many.
    pub last: Option<usize>,
}

impl Selection {
    /// Whether a record is wanted, apart from the limit of their number.
    #[must_use]
    pub fn wants(&self, process: &Process, record: &Record) -> bool {
        let time = process.axis_ps(record.fields.time_ps);
        time >= self.from_ps
            && self.to_ps.is_none_or(|to| time <= to)
            && self.rank.is_none_or(|rank| process.trace.rank == Some(rank))
            && (!self.is_failures || record.has_failed())
            && self.qp.is_none_or(|qp| concerns(process, record, qp))
    }

    /// The records that are wanted, as process and place, by their time.
    #[must_use]
    pub fn apply(&self, processes: &[Process]) -> Vec<(usize, usize)> {
        let mut found: Vec<(u64, usize, usize)> = Vec::new();
        for (number, process) in processes.iter().enumerate() {
            let wanted =
                process.trace.records.iter().enumerate().filter(|(_, record)| self.wants(process, record));
            found.extend(wanted.map(|(at, record)| (process.axis_ps(record.fields.time_ps), number, at)));
        }
        found.sort_unstable();
        let skipped = self.last.map_or(0, |last| found.len().saturating_sub(last));
        found.into_iter().skip(skipped).map(|(_, number, at)| (number, at)).collect()
    }
}

/// Whether a record is about the queue pair with this number.
fn concerns(process: &Process, record: &Record, qp: u32) -> bool {
    let object = process.trace.objects.get(&record.fields.object);
    match record.what {
        What::Completion => record.fields.other == qp,
        _ => object.is_some_and(|object| {
            object.class == Class::Qp && [object.number(), object.reported_number()].contains(&qp)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Job;
    use crate::read::tests::File;

    #[test]
    fn selections_combine() {
        let mut file = File::new();
        file.qp(3, true);
        file.qp(4, true);
        for at in 0..10 {
            file.send(100 * at, 3 + (at % 2) as u32, at, 0);
        }
        file.completion(2000, 0x30, 0, 0);
        file.completion(2000, 0x40, 1, 3);
        let job = Job::new(vec![("x".into(), file.read())]);
        let count = |selection: Selection| selection.apply(&job.processes).len();
        assert_eq!(count(Selection::default()), 12);
        assert_eq!(count(Selection { qp: Some(0x30), ..Selection::default() }), 6);
        assert_eq!(count(Selection { is_failures: true, ..Selection::default() }), 1);
        assert_eq!(count(Selection { from_ps: 200, to_ps: Some(400), ..Selection::default() }), 3);
        assert_eq!(count(Selection { rank: Some(0), ..Selection::default() }), 0);
        let last = Selection { last: Some(2), ..Selection::default() }.apply(&job.processes);
        assert_eq!(last, [(0, 10), (0, 11)]);
    }
}
