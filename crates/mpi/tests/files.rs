//! Tests files: each body in a simulated world, and in threads over shared memory and over iWARP. Random views are checked against
//! a model of every byte.

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datatypes::{Basic, Datatype, Order};
use mpi::{
    Buffer, Class, Collective, Comm, Conversion, Errhandler, File, FileMode, Info, Position, Process,
    Representation, Whence,
};
use support::{Play, TestRng, buffer, in_threads, typed};

/// A test for each kind of time and each body, with this number of ranks.
macro_rules! bodies {
    ($($name:ident $ranks:literal)*) => {
        mod model {
            $(#[test] fn $name() { super::Play::new($ranks).run(super::$name); })*
        }
        mod shm {
            $(#[test] fn $name() { super::in_threads("shm", $ranks, mpi::Connect::OnDemand, super::$name); })*
        }
        mod iwarp {
            $(#[test] fn $name() { super::in_threads("iwarp", $ranks, mpi::Connect::OnDemand, super::$name); })*
        }
    };
}

bodies! {
    files_match_a_model 4
    a_file_of_one_process_matches_a_model 1
    the_shared_file_pointer_is_exclusive 4
    ordered_operations_follow_ranks 3
    seek_sets_file_pointers 2
    atomic_writes_do_not_mix 3
    split_operations_have_two_halves 2
    errors_have_their_class 2
    a_full_disk_is_reported_to_all 3
    sizes_are_set_together 2
    external32_is_the_same_everywhere 2
    user_defined_conversions_are_used 1
    views_and_modes_are_checked 2
    a_header_is_written_with_the_data 3
}

/// A name that all members of a job agree on, and that is unique.
fn path(comm: &Comm) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut number = [0; 8];
    if comm.rank() == 0 {
        number = NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    }
    comm.collective(&Collective::Bcast { buffer: buffer(&mut number), root: 0 }).expect("all call it");
    let (process, number) = (std::process::id(), u64::from_le_bytes(number));
    std::env::temp_dir().join(format!("nicety-files-{process}-{number}"))
}

fn mode(modes: &[FileMode]) -> FileMode {
    FileMode::new(modes.iter().map(|mode| mode.number()).sum()).expect("a mode")
}

/// A new file that is deleted when it is closed.
fn scratch(comm: &Comm, info: &Info) -> File {
    let mode = mode(&[FileMode::RDWR, FileMode::CREATE, FileMode::EXCL, FileMode::DELETE_ON_CLOSE]);
    File::open(comm, &path(comm), mode, info, Errhandler::Return).expect("a file")
}

fn barrier(comm: &Comm) {
    comm.collective(&Collective::Barrier).expect("all call it");
}

fn view(file: &File, displacement: i64, etype: &Datatype, filetype: &Datatype) {
    filetype.commit();
    let (etype, filetype) = (etype.clone(), filetype.clone());
    file.set_view(displacement, etype, filetype, Representation::Native, &Info::default()).expect("a view");
}

fn plain(file: &File) {
    view(file, 0, &Basic::Byte.into(), &Basic::Byte.into());
}

fn class<T>(done: mpi::Result<T>) -> Class {
    done.err().map_or(Class::SUCCESS, |error| error.class)
}

fn write(file: &File, bytes: &[u8], place: Position) {
    let status = file.write(&buffer(&mut bytes.to_vec()), place).expect("written");
    assert_eq!(status.bytes, bytes.len() as u64);
}

fn read(file: &File, room: usize, place: Position) -> Vec<u8> {
    let mut bytes = vec![0xee; room];
    let status = file.read(&buffer(&mut bytes), place).expect("read");
    assert!(bytes[status.bytes as usize..].iter().all(|byte| *byte == 0xee), "nothing behind what was read");
    bytes.truncate(status.bytes as usize);
    bytes
}

/// The rank that owns each cell of a tile.
struct DealtCells {
    owners: Vec<i32>,
    displacement: usize,
}

const CELL: usize = 4;

impl DealtCells {
    fn new(rng: &mut TestRng, ranks: i32) -> Self {
        let cells = ranks as usize + rng.below(9);
        let mut owners: Vec<i32> = (0..cells).map(|_| rng.below(ranks as usize + 1) as i32 - 1).collect();
        // Each rank has at least one.
        (0..ranks).for_each(|rank| owners[rank as usize] = rank);
        (0..cells).for_each(|at| owners.swap(at, rng.below(cells)));
        Self { owners, displacement: rng.below(7) }
    }

    fn cells(&self, rank: i32) -> Vec<i64> {
        (0..).zip(&self.owners).filter(|(_, owner)| **owner == rank).map(|(cell, _)| cell).collect()
    }

    fn filetype(&self, rank: i32) -> Datatype {
        let cells = Datatype::indexed_block(1, &self.cells(rank), &Basic::Int.into()).expect("a type");
        Datatype::resized(&cells, 0, (CELL * self.owners.len()) as i64).expect("a type")
    }

    /// The offsets in the file of `len` bytes of a rank's view, starting with byte `from`.
    fn bytes(&self, rank: i32, from: usize, len: usize) -> Vec<usize> {
        let cells = self.cells(rank);
        let byte = |n: usize| {
            let (cell, within) = (n / CELL, n % CELL);
            let (tile, cell) = (cell / cells.len(), cells[cell % cells.len()] as usize);
            self.displacement + (tile * self.owners.len() + cell) * CELL + within
        };
        (from..from + len).map(byte).collect()
    }
}

/// Random hints for a round.
fn hints(rng: &mut TestRng) -> Info {
    let mut info = Info::default();
    let words = ["automatic", "enable", "disable"];
    for (key, value) in [
        ("romio_cb_write", words[rng.below(3)].to_owned()),
        ("romio_cb_read", words[rng.below(3)].to_owned()),
        ("cb_nodes", (1 + rng.below(4)).to_string()),
        ("cb_buffer_size", (4096 * (1 + rng.below(3))).to_string()),
    ] {
        info.set(key, &value).expect("short");
    }
    info
}

/// Memory with scattered or contiguous cells: its bytes, and the type, count and stride of its data.
fn memory(rng: &mut TestRng, cells: usize) -> (Vec<u8>, Datatype, i64, usize) {
    let apart = 1 + rng.below(3);
    let datatype = Datatype::resized(&Basic::Int.into(), 0, (apart * CELL) as i64).expect("a type");
    datatype.commit();
    (vec![0xee; cells * apart * CELL + CELL], datatype, cells as i64, apart)
}

fn spread(memory: &mut [u8], data: &[u8], apart: usize) {
    for (cell, bytes) in data.chunks(CELL).enumerate() {
        memory[cell * apart * CELL..][..bytes.len()].copy_from_slice(bytes);
    }
}

fn transfer(rng: &mut TestRng, file: &File, buffer: &Buffer, first: i64, is_write: bool) -> mpi::Result<u64> {
    let place = if rng.below(2) == 0 {
        Position::At(first)
    } else {
        file.seek(first, Whence::Set)?;
        Position::Individual
    };
    let kind = rng.below(4);
    let status = match (kind, is_write) {
        (0, true) => file.write(buffer, place)?,
        (0, false) => file.read(buffer, place)?,
        (1, true) => file.iwrite(buffer, place)?.wait().ok()?,
        (1, false) => file.iread(buffer, place)?.wait().ok()?,
        (2, true) => file.write_all(buffer, place)?,
        (2, false) => file.read_all(buffer, place)?,
        (_, true) => file.write_all_begin(buffer, place).and_then(|()| file.write_all_end(place))?,
        (_, false) => file.read_all_begin(buffer, place).and_then(|()| file.read_all_end(place))?,
    };
    if place == Position::Individual {
        assert_eq!(file.position()?, first + status.bytes as i64 / CELL as i64);
    }
    Ok(status.bytes)
}

/// Goal: for any views, calls and hints, the file matches a model of all bytes, and reads return its contents. Method: cells are
/// assigned to ranks at random, so that no two write the same byte; all ranks use the same random numbers for common parameters,
/// and know what each other rank writes.
fn random_views(process: &Process, seed: u64, rounds: u64) {
    let (comm, me) = (process.world(), process.world().rank());
    let file = scratch(comm, &Info::default());
    let mut model: Vec<u8> = Vec::new();
    for round in seed * 1000..seed * 1000 + rounds {
        let mut rng = TestRng::new(round * 77 + 5);
        let dealt = DealtCells::new(&mut rng, comm.size());
        let info = hints(&mut rng);
        let filetype = dealt.filetype(me);
        filetype.commit();
        let displacement = dealt.displacement as i64;
        let set = || {
            file.set_view(displacement, Basic::Int.into(), filetype.clone(), Representation::Native, &info)
        };
        set().expect("a view");
        // Sometimes more than an aggregator's buffer holds.
        let most = if round % 4 == 0 { 2000 } else { 40 };
        let wishes: Vec<(usize, usize)> =
            (0..comm.size()).map(|_| (rng.below(30), rng.below(most))).collect();
        for (rank, (first, cells)) in (0..).zip(&wishes) {
            let data = support::pattern(rank, round as usize, cells * CELL);
            for (byte, value) in dealt.bytes(rank, first * CELL, cells * CELL).into_iter().zip(&data) {
                model.resize(model.len().max(byte + 1), 0);
                model[byte] = *value;
            }
            if rank == me {
                let mut own = TestRng::new(round * 131 + me as u64);
                let (mut bytes, datatype, count, apart) = memory(&mut own, *cells);
                spread(&mut bytes, &data, apart);
                let given = typed(&mut bytes, count, &datatype);
                let written = transfer(&mut rng.clone(), &file, &given, *first as i64, true);
                assert_eq!(written, Ok(data.len() as u64), "round {round}");
            }
        }
        barrier(comm);
        let mut rng = TestRng::new(round * 33 + 1);
        assert_eq!(file.size(), Ok(model.len() as i64), "round {round}");
        let (first, cells) = (rng.below(40), rng.below(most));
        let bytes = dealt.bytes(me, first * CELL, cells * CELL);
        let there: Vec<u8> = bytes.iter().map_while(|byte| model.get(*byte).copied()).collect();
        let mut own = TestRng::new(round * 17 + me as u64);
        let (mut got, datatype, count, apart) = memory(&mut own, cells);
        let mut expected = got.clone();
        spread(&mut expected, &there, apart);
        let found = transfer(&mut rng, &file, &typed(&mut got, count, &datatype), first as i64, false);
        assert_eq!(found, Ok(there.len() as u64), "round {round}");
        assert!(got == expected, "round {round}: rank {me} reads what is not there");
        plain(&file);
        assert!(
            read(&file, model.len() + 9, Position::At(0)) == model,
            "round {round}: the file is another one"
        );
        barrier(comm);
    }
    file.close().expect("closed");
}

fn files_match_a_model(process: &Process) {
    random_views(process, 0, 24);
}

fn a_file_of_one_process_matches_a_model(process: &Process) {
    random_views(process, 0, 24);
}

fn the_shared_file_pointer_is_exclusive(process: &Process) {
    let (comm, me) = (process.world(), process.world().rank());
    let file = scratch(comm, &Info::default());
    for number in 0..20 {
        write(&file, &support::pattern(me, number, 10), Position::Shared);
    }
    barrier(comm);
    assert_eq!(file.shared_position(), Ok(i64::from(comm.size()) * 200));
    let all = read(&file, 1000, Position::At(0));
    let mut found: Vec<&[u8]> = all.chunks(10).collect();
    let mut expected: Vec<Vec<u8>> =
        (0..comm.size()).flat_map(|rank| (0..20).map(move |n| support::pattern(rank, n, 10))).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "each record is there once, and whole");
    file.seek_shared(0, Whence::Set).expect("all call it");
    let first = file.iread(&buffer(&mut [0; 10]), Position::Shared).expect("begun").wait();
    assert_eq!(first.bytes, 10);
    barrier(comm);
    assert_eq!(file.shared_position(), Ok(i64::from(comm.size()) * 10));
    barrier(comm);
    file.close().expect("closed");
}

fn ordered_operations_follow_ranks(process: &Process) {
    let (comm, me) = (process.world(), process.world().rank());
    let file = scratch(comm, &Info::default());
    // The first rank has no data in the second round.
    let len = |rank: i32, round: usize| if round == 1 { 7 * rank as usize } else { 5 };
    let mut expected = Vec::new();
    for round in 0..3 {
        let mut mine = support::pattern(me, round, len(me, round));
        file.write_all(&buffer(&mut mine), Position::Shared).expect("written");
        (0..comm.size()).for_each(|rank| expected.extend(support::pattern(rank, round, len(rank, round))));
    }
    barrier(comm);
    assert_eq!(read(&file, 1000, Position::At(0)), expected);
    file.seek_shared(-5 * i64::from(comm.size()), Whence::End).expect("all call it");
    let mut got = vec![0; 5];
    file.read_all_begin(&buffer(&mut got), Position::Shared).expect("begun");
    assert_eq!(file.read_all_end(Position::Shared).map(|status| status.bytes), Ok(5));
    assert_eq!(got, support::pattern(me, 2, 5));
    barrier(comm);
    file.close().expect("closed");
}

fn seek_sets_file_pointers(process: &Process) {
    let comm = process.world();
    let file = scratch(comm, &Info::default());
    // Every second int is visible.
    let filetype = Datatype::resized(&Basic::Int.into(), 0, 8).expect("a type");
    view(&file, 4, &Basic::Int.into(), &filetype);
    if comm.rank() == 0 {
        write(&file, &[1; 20], Position::At(0));
    }
    barrier(comm);
    assert_eq!((file.size(), file.byte_offset(3)), (Ok(40), Ok(28)));
    file.seek(0, Whence::End).expect("there is an end");
    assert_eq!(file.position(), Ok(5));
    file.seek(-2, Whence::Current).expect("not before the beginning");
    assert_eq!(read(&file, 100, Position::Individual), [1; 8]);
    assert_eq!(file.position(), Ok(5));
    assert_eq!(class(file.seek(-6, Whence::Current)), Class::ARG);
    assert_eq!(class(file.seek_shared(-1, Whence::Set)), Class::ARG);
    assert_eq!((file.position(), file.shared_position()), (Ok(5), Ok(0)));
    file.close().expect("closed");
}

/// Goal: of concurrent writes to the same scattered places one remains complete. Method: all ranks write concurrently, repeatedly,
/// and check the result.
fn atomic_writes_do_not_mix(process: &Process) {
    let (comm, me) = (process.world(), process.world().rank());
    let file = scratch(comm, &Info::default());
    let filetype = Datatype::resized(&Basic::Int.into(), 0, 64).expect("a type");
    view(&file, 0, &Basic::Int.into(), &filetype);
    file.set_atomic(true).expect("all call it");
    assert!(file.is_atomic());
    for round in 0..10 {
        let mine = vec![(10 * round + me) as u8; 4 * 50];
        let done = if round % 2 == 0 {
            file.write(&buffer(&mut mine.clone()), Position::At(0))
        } else {
            file.write_all(&buffer(&mut mine.clone()), Position::At(0))
        };
        done.expect("written");
        let found = read(&file, 200, Position::At(0));
        assert!(found.windows(2).all(|two| two[0] == two[1]), "round {round}: {found:?}");
        barrier(comm);
    }
    file.close().expect("closed");
}

fn split_operations_have_two_halves(process: &Process) {
    let (comm, me) = (process.world(), process.world().rank());
    let file = scratch(comm, &Info::default());
    let mut mine = support::pattern(me, 0, 100);
    file.write_all_begin(&buffer(&mut mine), Position::At(100 * i64::from(me))).expect("begun");
    assert_eq!(
        class(file.write_all_begin(&buffer(&mut [0; 4]), Position::At(0))),
        Class::IO,
        "one at a time"
    );
    assert_eq!(class(file.read_all_end(Position::At(0))), Class::IO, "another one has begun");
    assert_eq!(class(file.write_all_end(Position::Individual)), Class::IO, "at another kind of place");
    assert_eq!(class(file.close()), Class::IO, "it has not ended");
    assert_eq!(file.write_all_end(Position::At(0)).map(|status| status.bytes), Ok(100));
    assert_eq!(class(file.write_all_end(Position::At(0))), Class::IO, "it has ended");
    barrier(comm);
    assert_eq!(read(&file, 100, Position::At(100 * i64::from(1 - me))), support::pattern(1 - me, 0, 100));
    barrier(comm);
    file.close().expect("closed");
    assert_eq!(class(file.size()), Class::FILE, "it is closed");
}

fn errors_have_their_class(process: &Process) {
    let comm = process.world();
    let open = |path: &PathBuf, modes: &[FileMode]| {
        File::open(comm, path, mode(modes), &Info::default(), Errhandler::Return)
    };
    let there = path(comm);
    assert_eq!(class(open(&there, &[FileMode::RDONLY])), Class::NO_SUCH_FILE);
    assert_eq!(class(open(&there.join("x"), &[FileMode::RDWR, FileMode::CREATE])), Class::NO_SUCH_FILE);
    assert_eq!(class(open(&std::env::temp_dir(), &[FileMode::RDONLY])), Class::BAD_FILE);
    assert_eq!(class(open(&"x".repeat(300).into(), &[FileMode::RDONLY])), Class::BAD_FILE);
    let made = open(&there, &[FileMode::WRONLY, FileMode::CREATE, FileMode::EXCL]).expect("it is new");
    assert_eq!(class(open(&there, &[FileMode::RDWR, FileMode::CREATE, FileMode::EXCL])), Class::FILE_EXISTS);
    assert_eq!(class(open(&there.join("x"), &[FileMode::RDONLY])), Class::BAD_FILE);
    assert_eq!(class(made.read(&buffer(&mut [0; 4]), Position::Individual)), Class::ACCESS);
    assert_eq!(class(made.write(&buffer(&mut [0; 4]), Position::At(-1))), Class::ARG);
    assert_eq!(class(made.read_all(&buffer(&mut [0; 4]), Position::Shared)), Class::ACCESS);
    made.close().expect("closed");
    assert_eq!(class(made.close()), Class::FILE);
    let alike = if comm.rank() == 0 { FileMode::RDWR } else { FileMode::RDONLY };
    assert_eq!(class(open(&there, &[alike])), Class::NOT_SAME);
    let read = open(&there, &[FileMode::RDONLY]).expect("it is there");
    assert_eq!(class(read.write(&buffer(&mut [0; 4]), Position::Individual)), Class::READ_ONLY);
    assert_eq!(class(read.set_size(4)), Class::READ_ONLY);
    assert_eq!(read.sync(), Ok(()));
    // An error of one rank does not hang the others.
    let place = if comm.rank() == 0 { Position::At(-1) } else { Position::At(0) };
    assert_eq!(class(read.read_all(&buffer(&mut [0; 4]), place)), Class::ARG);
    read.close().expect("closed");
    barrier(comm);
    if comm.rank() == 0 {
        File::delete(&there).expect("it is there");
        assert_eq!(class(File::delete(&there)), Class::NO_SUCH_FILE);
    }
    barrier(comm);
}

fn a_full_disk_is_reported_to_all(process: &Process) {
    let (comm, me) = (process.world(), process.world().rank());
    let full = PathBuf::from("/dev/full");
    let file = File::open(comm, &full, mode(&[FileMode::WRONLY]), &Info::default(), Errhandler::Return);
    let file = file.expect("there is such a device");
    assert_eq!(class(file.write(&buffer(&mut [0; 4]), Position::At(0))), Class::NO_SPACE);
    let filetype = Datatype::resized(&Basic::Int.into(), 0, 12).expect("a type");
    view(&file, 4 * i64::from(me), &Basic::Int.into(), &filetype);
    let mut mine = vec![1; 40_000];
    assert_eq!(class(file.write_all(&buffer(&mut mine), Position::At(0))), Class::NO_SPACE);
    file.close().expect("closed");
}

/// The environment variable with the directory of the small file system below.
const SMALL_DISK: &str = "NICETY_SMALL_DISK";

/// Writes collectively, each rank every third block, until the disk is full; then independently, as long as anything fits. All data
/// reported as written are read again; a failed collective write is an error at all ranks.
fn a_disk_is_filled(process: &Process) {
    let (comm, me) = (process.world(), process.world().rank());
    let there = PathBuf::from(std::env::var_os(SMALL_DISK).expect("a disk")).join("full");
    let modes = mode(&[FileMode::RDWR, FileMode::CREATE]);
    let file = File::open(comm, &there, modes, &Info::default(), Errhandler::Return).expect("a file");
    let block = Datatype::contiguous(1000, &Basic::Byte.into()).expect("a type");
    let filetype = Datatype::resized(&block, 0, 3000).expect("a type");
    view(&file, 1000 * i64::from(me), &Basic::Byte.into(), &filetype);
    let mut rounds = 0;
    let error = loop {
        let mut bytes = support::pattern(me, rounds, 9000);
        match file.write_all(&buffer(&mut bytes), Position::At(9000 * rounds as i64)) {
            Ok(status) => assert_eq!(status.bytes, 9000),
            Err(error) => break error,
        }
        rounds += 1;
        assert!(rounds < 1000, "the disk is not small");
    };
    assert_eq!(error.class, Class::NO_SPACE, "{error}");
    barrier(comm);
    let mut alone = 0;
    while rounds > 0 && alone < 1000 {
        let mut bytes = support::pattern(me, 5000 + alone, 700);
        let at = 9000 * rounds as i64 + 700 * alone as i64;
        match file.write(&buffer(&mut bytes), Position::At(at)) {
            Ok(status) => assert_eq!(status.bytes, 700),
            Err(error) => {
                assert_eq!(error.class, Class::NO_SPACE, "{error}");
                break;
            }
        }
        alone += 1;
    }
    assert!(file.sync().is_ok() && rounds > 3 && alone < 1000, "{rounds} rounds, then {alone}");
    barrier(comm);
    for round in 0..rounds {
        let place = Position::At(9000 * round as i64);
        assert!(read(&file, 9000, place) == support::pattern(me, round, 9000), "round {round}");
    }
    for one in 0..alone {
        let place = Position::At(9000 * rounds as i64 + 700 * one as i64);
        assert!(read(&file, 700, place) == support::pattern(me, 5000 + one, 700), "alone, {one}");
    }
    file.close().expect("closed");
}

/// Goal: data reported as written exist, however the disk fills. Method: run this test again in a process with its own file system
/// of 400 KiB, which needs no privilege.
#[test]
fn a_full_disk_loses_nothing() {
    if std::env::var_os(SMALL_DISK).is_some() {
        return in_threads("shm", 3, mpi::Connect::OnDemand, a_disk_is_filled);
    }
    let folder = std::env::temp_dir().join(format!("nicety-disk-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let unshare = |script: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-ec", script]).arg(&folder);
        command
    };
    let mount = "mount -t tmpfs -o size=400k nicety \"$0\"";
    let can = unshare(mount).status().is_ok_and(|status| status.success());
    if can {
        let mut again = unshare(&format!("{mount}; exec \"$@\""));
        again.arg(std::env::current_exe().expect("this test"));
        again.args(["--exact", "a_full_disk_loses_nothing", "--nocapture"]).env(SMALL_DISK, &folder);
        let output = again.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    } else {
        eprintln!("SKIPPED: no file system of its own can be mounted here");
    }
    std::fs::remove_dir(&folder).expect("nothing is in it");
}

/// Random views in worlds, by seed.
#[test]
fn random_views_match_the_model() {
    support::each_seed(2, "views", |seed| {
        let play = Play { seed, ..Play::new(1 + (seed % 5) as u32) };
        play.run(move |process| random_views(process, seed, 6))
    });
}

fn sizes_are_set_together(process: &Process) {
    let comm = process.world();
    let file = scratch(comm, &Info::default());
    for (size, expected) in [(1, 1), (100, 100), (10, 100), (0, 100)] {
        file.preallocate(size).expect("there is room");
        assert_eq!(file.size(), Ok(expected));
        barrier(comm);
    }
    file.set_size(7).expect("shorter");
    assert_eq!(file.size(), Ok(7));
    assert_eq!(class(file.set_size(-1)), Class::ARG);
    assert_eq!(class(file.preallocate(-1)), Class::ARG);
    assert_eq!(file.sync(), Ok(()));
    assert_eq!(read(&file, 100, Position::At(0)), [0; 7]);
    assert!(read(&file, 100, Position::At(7)).is_empty());
    file.close().expect("closed");
}

fn external32_is_the_same_everywhere(process: &Process) {
    let (comm, me) = (process.world(), process.world().rank());
    let file = scratch(comm, &Info::default());
    let long = Datatype::from(Basic::Long);
    assert_eq!(file.type_extent(&long), Ok(8));
    // Every second long, which has four bytes in external32.
    let filetype = Datatype::vector(1, 1, 2, &long).expect("a type");
    let filetype = Datatype::resized(&filetype, 0, 8).expect("a type");
    filetype.commit();
    let representation = Representation::External32;
    file.set_view(4 * i64::from(me), long.clone(), filetype, representation, &Info::default())
        .expect("a view");
    assert_eq!(file.type_extent(&long), Ok(4));
    let mut values: Vec<u8> = (0..5_i64).flat_map(|n| (-(10 * n + i64::from(me))).to_ne_bytes()).collect();
    assert_eq!(file.write_all(&typed(&mut values, 5, &long), Position::Individual).map(|s| s.bytes), Ok(40));
    assert_eq!(file.position(), Ok(5));
    barrier(comm);
    let mut got = vec![0; 8 * 9];
    let status = file.read_all(&typed(&mut got, 9, &long), Position::At(2)).expect("read");
    assert_eq!((status.bytes, &got[..24]), (24, &values[16..]));
    let mut far = (1_i64 << 40).to_ne_bytes();
    assert_eq!(class(file.write(&typed(&mut far, 1, &long), Position::At(0))), Class::CONVERSION);
    plain(&file);
    let expected: Vec<u8> = (0..5).flat_map(|n| [-10 * n, -10 * n - 1]).flat_map(i32::to_be_bytes).collect();
    assert_eq!(read(&file, 100, Position::At(0)), expected);
    barrier(comm);
    file.close().expect("closed");
}

/// Each byte twice.
struct Doubled;

impl Conversion for Doubled {
    fn extent(&self, datatype: &Datatype) -> mpi::Result<i64> {
        Ok(2 * datatype.extent())
    }

    fn read(&self, address: usize, count: i64, datatype: &Datatype, from: &[u8]) -> mpi::Result<()> {
        let bytes: Vec<u8> = from.iter().copied().step_by(2).collect();
        assert_eq!(bytes.len() as i64, count * datatype.extent());
        // SAFETY: the memory has the elements' size.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                std::ptr::with_exposed_provenance_mut(address),
                bytes.len(),
            )
        };
        Ok(())
    }

    fn write(&self, address: usize, count: i64, datatype: &Datatype, into: &mut [u8]) -> mpi::Result<()> {
        let len = (count * datatype.extent()) as usize;
        assert_eq!(into.len(), 2 * len);
        // SAFETY: as above.
        let bytes =
            unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(address), len) };
        into.iter_mut().zip(bytes.iter().flat_map(|byte| [*byte; 2])).for_each(|(to, byte)| *to = byte);
        Ok(())
    }
}

fn user_defined_conversions_are_used(process: &Process) {
    let file = scratch(process.world(), &Info::default());
    let short = || Datatype::from(Basic::Short);
    let doubled = Representation::User { name: "doubled".into(), conversion: Arc::new(Doubled) };
    file.set_view(0, short(), short(), doubled, &Info::default()).expect("a view");
    assert_eq!((file.view().representation().name(), file.type_extent(&short())), ("doubled", Ok(4)));
    let mut mine = [1, 2, 3, 4, 5, 6];
    file.write(&typed(&mut mine, 3, &short()), Position::Individual).expect("written");
    assert_eq!(file.position(), Ok(3));
    let mut got = [0; 8];
    assert_eq!(file.read(&typed(&mut got, 4, &short()), Position::At(1)).map(|status| status.bytes), Ok(4));
    assert_eq!(got, [3, 4, 5, 6, 0, 0, 0, 0]);
    plain(&file);
    assert_eq!(read(&file, 100, Position::At(0)), [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]);
    file.close().expect("closed");
}

/// Goal: a filetype with a header before its part of an array, as PnetCDF's first rank uses, shows that part as other ranks see it,
/// although its bounds are those of the array only. Method: columns of a table, the first of which leaves space for a header.
fn a_header_is_written_with_the_data(process: &Process) {
    const AT: i64 = 48;
    let (comm, byte) = (process.world(), Datatype::from(Basic::Byte));
    let (ranks, me) = (i64::from(comm.size()), comm.rank());
    let columns = Datatype::subarray(&[4, ranks], &[4, 1], &[0, me.into()], Order::C, &Basic::Int.into());
    let mut filetype = columns.expect("a type");
    if me == 0 {
        filetype = Datatype::structure(&[8, 1], &[0, AT], &[byte.clone(), filetype]).expect("a type");
        assert_eq!((filetype.lb(), filetype.extent()), (AT, 16 * ranks));
    }
    let (displacement, first) = if me == 0 { (0, 8) } else { (AT, 0) };
    let file = scratch(comm, &Info::default());
    view(&file, displacement, &byte, &filetype);
    let mut mine = [me as u8 + 1; 16];
    file.write_all(&buffer(&mut mine), Position::At(first)).expect("written");
    if me == 0 {
        write(&file, &[9; 8], Position::At(0));
    }
    barrier(comm);
    let mut got = [0; 16];
    file.read_all(&buffer(&mut got), Position::At(first)).expect("read");
    assert_eq!(got, mine);
    plain(&file);
    let mut want = vec![0; AT as usize];
    want[..8].fill(9);
    want.extend((0..16 * ranks).map(|at| (at / 4 % ranks) as u8 + 1));
    assert_eq!(read(&file, 1000, Position::At(0)), want);
    file.close().expect("closed");
}

fn views_and_modes_are_checked(process: &Process) {
    let comm = process.world();
    let there = path(comm);
    let open = |modes: &[FileMode]| {
        File::open(comm, &there, mode(modes), &Info::default(), Errhandler::Return).expect("a file")
    };
    let file = open(&[FileMode::WRONLY, FileMode::CREATE, FileMode::SEQUENTIAL]);
    let byte = || Datatype::from(Basic::Byte);
    let set = |file: &File, displacement: i64| {
        class(file.set_view(displacement, byte(), byte(), Representation::Native, &Info::default()))
    };
    assert_eq!(class(file.write(&buffer(&mut [0; 4]), Position::Individual)), Class::UNSUPPORTED_OPERATION);
    assert_eq!(class(file.seek(0, Whence::Set)), Class::UNSUPPORTED_OPERATION);
    assert_eq!(set(&file, 0), Class::UNSUPPORTED_OPERATION);
    file.write_all(&buffer(&mut [b'a'; 4]), Position::Shared).expect("written");
    assert_eq!(set(&file, -1), Class::SUCCESS);
    assert_eq!(file.view().displacement(), 4 * i64::from(comm.size()));
    file.write_all(&buffer(&mut [b'b'; 4]), Position::Shared).expect("written");
    file.close().expect("closed");
    let file = open(&[FileMode::RDWR, FileMode::APPEND, FileMode::DELETE_ON_CLOSE]);
    assert_eq!((file.position(), file.shared_position()), (Ok(16), Ok(16)));
    assert_eq!(read(&file, 100, Position::At(0)), *b"aaaaaaaabbbbbbbb");
    assert_eq!(set(&file, -1), Class::UNSUPPORTED_OPERATION);
    // An invalid argument of one rank is an error at all.
    assert_ne!(set(&file, if comm.rank() == 0 { -2 } else { 0 }), Class::SUCCESS);
    let int = Datatype::from(Basic::Int);
    view(&file, 0, &int, &int);
    assert_eq!(class(file.write(&buffer(&mut [0; 3]), Position::At(0))), Class::ARG, "no whole etypes");
    file.close().expect("closed");
    assert!(!there.exists(), "deleted when it was closed");
    barrier(comm);
}
