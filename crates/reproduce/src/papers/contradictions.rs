//! Where the papers contradict themselves or each other, as far as covered rows are concerned. Such rows are shown
//! unchanged; rows that no model could meet together are scored separately. Nothing was adjusted to meet them.

use serde::Serialize;

/// A place where papers contradict themselves, each other or arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Contradiction {
    /// Its number in the list of inconsistencies of the dataset.
    pub entry: &'static str,
    /// Rows that it concerns.
    pub rows: &'static [&'static str],
    /// The printed text, and the reading used here.
    pub text: &'static str,
}

/// All known contradictions.
pub const CONTRADICTIONS: [Contradiction; 47] = [
    Contradiction {
        entry: "X1",
        rows: &[
            "MT-089", "MT-090", "MT-097", "MT-103", "MT-177", "MT-178", "MT-179", "MT-185", "MT-186",
            "MT-187",
        ],
        text: "The thesis never defines MB. Read as 10^6 the same card would be 5 % slower than in the other paper; \
               read here as 2^20.",
    },
    Contradiction {
        entry: "X2",
        rows: &["NM-043", "NM-054", "MT-089", "MT-177", "MT-097", "MT-185"],
        text: "Host-to-host on the same card: 886 and 936 MB/s in one paper, 879 and 946 in the other. The hosts and \
               the firmware differ; each paper has its own machine file.",
    },
    Contradiction {
        entry: "X6",
        rows: &["NM-119"],
        text: "By the paper's own definition a message of 1 MByte would have 10^6 bytes; 2^20 here, as all sweeps are in \
               powers of two.",
    },
    Contradiction {
        entry: "N1",
        rows: &["NM-006", "NM-007"],
        text: "266 and 250 are printed as MHz; with a peak of 2000 MB/s over 64 bits they can only be transfers.",
    },
    Contradiction {
        entry: "N3",
        rows: &["NM-055", "NM-079", "NM-088"],
        text: "The text suspects that mixed reads and writes hold nic-to-nic at 1788 MB/s over two ports; the same mix \
               reaches 1859 over one.",
    },
    Contradiction {
        entry: "N4",
        rows: &["NM-031", "NM-069"],
        text: "Nic-to-host over two ports reaches 961 MB/s, more than the 956 of the local test that should bound it.",
    },
    Contradiction {
        entry: "N6",
        rows: &["NM-001", "NM-123"],
        text: "A speed-up of 2.2 is more than the peaks explain (1686 over 855 is 1.97); compared here with the largest \
               over all sizes and lengths.",
    },
    Contradiction {
        entry: "N8",
        rows: &["NM-038", "NM-039"],
        text: "The improvement factor of Figure 4 is never defined; read here as a reduction in per cent of host-to-host.",
    },
    Contradiction {
        entry: "N9",
        rows: &["NM-129", "NM-130"],
        text: "32 and 40 Gb/s are both directions of 8 lanes added, though called full duplex.",
    },
    Contradiction {
        entry: "T1",
        rows: &["MT-077", "MT-078"],
        text: "The text says 70 to 80 us for registration and deregistration; its own table has 70.84 to 82.05.",
    },
    Contradiction {
        entry: "T2",
        rows: &["MT-163", "MT-164"],
        text: "The text says that both registration and deregistration cost more on InfiniBand than on Myrinet; in its \
               table deregistration costs less (82.05 against 101.80).",
    },
    Contradiction {
        entry: "T3",
        rows: &["MT-116", "MT-117", "MT-210"],
        text: "Bandwidth falls after five buffers in chapter 3, beyond ten in chapter 4, on the same card under the same \
               interface.",
    },
    Contradiction {
        entry: "T4",
        rows: &["MT-190", "MT-191", "MT-192", "MT-193"],
        text: "The host overhead of the figure is not what a post and the poll that finds a message take by the thesis's own \
               tables: 1.80, 0.55 and 1.06 us, against 1.5, 0.7 and 0.5 us, and not even the order is the same. Read as both \
               posts and a poll of an empty queue, which InfiniBand's table makes 1.56 us; the tables have no empty poll of \
               the other two.",
    },
    Contradiction {
        entry: "T5",
        rows: &["MT-235", "MT-236"],
        text: "Printed as N/R and 1 - N/R; N R and N (1 - R) are meant, as chapter 4 has it.",
    },
    Contradiction {
        entry: "T8",
        rows: &["MT-114", "MT-115"],
        text: "No decrease in latency is printed where no increase is meant.",
    },
    Contradiction {
        entry: "T10",
        rows: &["MT-021", "MT-249"],
        text: "Events are said to tell of completions under GM, and that there is no notification: events tell of sends, not \
               of directed sends.",
    },
    Contradiction {
        entry: "T11",
        rows: &["MT-219", "MT-220", "MT-221", "MT-222", "MT-223", "MT-224"],
        text: "The two hot spot tests are described in two ways; chapter 2 is followed.",
    },
    Contradiction {
        entry: "T13",
        rows: &["MT-104", "MT-105", "MT-106", "MT-107", "MT-195", "MT-196", "MT-197"],
        text: "After 99.5 % in chapter 3, over 99 % in chapter 4. Neither size nor number of messages is given; here enough \
               is moved that the processor's own work is a small share.",
    },
    Contradiction {
        entry: "T14",
        rows: &["MT-142", "MT-143", "MT-144", "MT-145"],
        text: "Larger packets are said to be better, and 1024 better than 2048; both hold if the order is 256, 512, 2048, \
               1024.",
    },
    Contradiction {
        entry: "T18",
        rows: &["MT-179", "MT-184", "MT-186"],
        text: "Quadrics has hardly more bandwidth both ways than one way, but no more latency; its bus could do more than \
               either.",
    },
    Contradiction {
        entry: "T15",
        rows: &["MT-227", "MT-228"],
        text: "Two numbers of one firmware, most likely.",
    },
    Contradiction {
        entry: "T16",
        rows: &["MT-073", "MT-074"],
        text: "Called creating a connection, but it is the modification of an existing queue pair only.",
    },
    Contradiction {
        entry: "I1",
        rows: &["IW-030"],
        text: "1287 million bytes a second are 10.3 Gb/s, more than the link carries; of its 1250 at most 1236 are data in \
               frames of 9000 bytes. Divided by 1.048576 it would be 1227. The model stays below the link's rate.",
    },
    Contradiction {
        entry: "I2",
        rows: &["IW-041"],
        text: "The difference between both ways of a put, 0.77 us, is called about the same as that of messages, which is \
               1.54.",
    },
    Contradiction {
        entry: "I3",
        rows: &["IW-040"],
        text: "About 74 % holds for two of the three ways; of the third it is 72.4.",
    },
    Contradiction {
        entry: "I4",
        rows: &["IW-003", "IW-076"],
        text: "80 % are an allreduce's in the abstract and a barrier's in the conclusions; both stand in the text.",
    },
    Contradiction {
        entry: "I5",
        rows: &["IW-061", "IW-062", "IW-064", "IW-065"],
        text: "Neither the size nor the number of processes is said; read as the smallest message at 32 processes.",
    },
    Contradiction { entry: "I6", rows: &["IW-058"], text: "3.6 times better is 3.6 times as much." },
    Contradiction {
        entry: "I9",
        rows: &["IW-048"],
        text: "One-sided operations over RDMA are said to be best in all cases, but all peaks are 1231 MB/s, and small puts are \
               messages.",
    },
    Contradiction {
        entry: "I10",
        rows: &["IW-051", "IW-052"],
        text: "Gets with and without RDMA take the same to four digits.",
    },
    Contradiction {
        entry: "R1",
        rows: &["MR-055"],
        text: "2.7 us are called 0.62 % of the single rail's latency; by the paper's own breakdown (9 + 78 us for \
               20) they are a factor of 0.62, with which the model is compared.",
    },
    Contradiction {
        entry: "R2",
        rows: &["MR-048"],
        text: "The single rail is said to take 2 to 4 us; by the breakdown 4 KiB take 4.35.",
    },
    Contradiction {
        entry: "R3",
        rows: &["MR-113", "MR-114"],
        text: "9 us of posting may be the single rail's or the threads'; read here as the single rail's, which the \
               factor of R1 asks for.",
    },
    Contradiction {
        entry: "R4",
        rows: &["MR-056", "MR-057"],
        text: "More than 10 us, and 9.95 by the breakdown at 512 B: rounded.",
    },
    Contradiction {
        entry: "R5",
        rows: &["MR-110"],
        text: "184 us are four times more than 36, that is five times as much; compared as more.",
    },
    Contradiction { entry: "R6", rows: &["MR-080"], text: "3350 over 1800 is 86 % more, not 89." },
    Contradiction {
        entry: "R7",
        rows: &["MR-003", "MR-077", "MR-079", "MR-124"],
        text: "2600 over 1350 is 92.6 % more; printed as about 90.",
    },
    Contradiction {
        entry: "R8",
        rows: &["MR-038"],
        text: "Channels of memory do not belong to slots; read as memory enough for both.",
    },
    Contradiction {
        entry: "R9",
        rows: &[
            "MR-001", "MR-002", "MR-064", "MR-072", "MR-076", "MR-078", "MR-092", "MR-093", "MR-121",
            "MR-122",
        ],
        text: "Not explained. Two rails gain 148 %, where 100 is all that two rails can explain, and two ports of one card gain \
               33 % on the same bus. Something that is no rail holds the single rail back, and the paper says nothing of it. \
               Whatever one thread does runs at three quarters: one card (1350 of 1800 MB/s), two cards (2600 of 3350), both \
               ways (2350 of 3150, 3950 of 5045). The model has one value for that, the speed of the chipset while a single \
               thread keeps only one of the processor's two chips awake; that it meets four ratios is all that speaks for \
               it. With both awake a single rail would reach 1800 MB/s and two cards gain 86 %.",
    },
    Contradiction {
        entry: "R10",
        rows: &["MR-053", "MR-059", "MR-060", "MR-069", "MR-073", "MR-074"],
        text: "Latency and bandwidth are one measurement, but two ports gain above 1 KiB by the one and above 4 KiB \
               by the other, and two cards above 128, above 256, and from 512 B. One thread over two cards takes \
               211 us for 4 KiB, so that 8 KiB have at most 776 MB/s; the single rail has 941 at 4 KiB already, and \
               yet 8 KiB are said to gain.",
    },
    Contradiction { entry: "R12", rows: &["MR-007"], text: "Immediate data have 4 bytes in InfiniBand." },
    Contradiction {
        entry: "R13",
        rows: &["MR-020", "MR-022"],
        text: "A loop from 0 to 20 has 21 turns; the formula has 20.",
    },
    Contradiction {
        entry: "R14",
        rows: &["MR-004", "MR-128"],
        text: "Gains of 114 and 68 % both ways are called similar to 148 and 90; read as in the same order.",
    },
    Contradiction {
        entry: "R16",
        rows: &["MR-043", "MR-065", "MR-070"],
        text: "Two ports have the bound of one, and gain 33 %: because the single rail runs far below its bound \
               (R9).",
    },
    Contradiction {
        entry: "A3",
        rows: &["AP-048", "AP-049", "AP-100"],
        text: "Over 1 us, nearly 3 us and 26 % are printed, and no latency. With 26 % at the smallest message that is 3.85 us at \
               least where the kernel matches; read here so.",
    },
    Contradiction {
        entry: "A4",
        rows: &["AP-048", "AP-095", "AP-096"],
        text: "Fifty entries of 30 ns are 1.5 us, more than the 1 us that the card saves: an entry in the kernel takes 10 ns at most, \
               or the card saves more.",
    },
    Contradiction {
        entry: "A12",
        rows: &["AP-074", "AP-075", "AP-123"],
        text: "Number and size of allgather's messages are said to grow with the nodes, and its time quadratically; with blocks of \
               one size no usual algorithm does either.",
    },
];

/// Entries whose rows no model can meet together, as the printed values exclude each other.
const EXCLUSIVE: [&str; 7] = ["T2", "T3", "T4", "I1", "I2", "I9", "R10"];

/// Whether a row contradicts others of its paper.
pub(crate) fn is_apart(id: &str) -> bool {
    of_row(id).iter().any(|entry| EXCLUSIVE.contains(entry))
}

/// The entries that concern a row.
pub(crate) fn of_row(id: &str) -> Vec<&'static str> {
    CONTRADICTIONS.iter().filter(|c| c.rows.contains(&id)).map(|c| c.entry).collect()
}

#[cfg(test)]
mod tests {
    use super::super::published::select;
    use super::*;

    #[test]
    fn contradictions_are_about_covered_rows() {
        let rows = select(None).expect("all rows");
        for Contradiction { entry, rows: named, .. } in CONTRADICTIONS {
            assert!(!named.is_empty());
            for id in named {
                assert!(rows.iter().any(|row| row.id == *id), "{entry}: {id}");
            }
        }
        assert_eq!(of_row("MT-089"), ["X1", "X2"]);
        assert!(is_apart("MR-069") && !is_apart("MT-089"));
        assert!(EXCLUSIVE.iter().all(|entry| CONTRADICTIONS.iter().any(|c| c.entry == *entry)));
    }
}
