//! The log of failed calls (`NICETY_LOG`): a program makes many kinds of mistakes, and each gives one line that names the call, the
//! argument or object, and the remedy.

mod common;

use std::collections::BTreeMap;
use std::process::Command;

use common::{Names, compile, end, has_compiler, said};

/// The mistakes of tests/c/misuse.c: their names, the call that the line begins with, and words of the line.
const MISTAKES: &[(&str, &str, &[&str])] = &[
    // Objects of libibverbs.
    ("open nothing", "ibv_open_device", &["ibv_device is NULL", "check the result", "EINVAL"]),
    ("query into nothing", "ibv_query_device", &["device_attr is NULL", "pass the address"]),
    ("port 2", "ibv_query_port", &["port_num is 2", "only port 1"]),
    ("GID 99", "ibv_query_gid", &["index is 99", "gid_tbl_len"]),
    ("GID -1", "ibv_query_gid", &["index is -1", "begins at 0"]),
    ("P_Key 1", "ibv_query_pkey", &["index is 1", "only entry 0"]),
    ("register nothing", "ibv_reg_mr", &["addr is 0x0", "pass mapped memory"]),
    ("register with an unknown flag", "ibv_reg_mr", &["access is 0x400", "remove it"]),
    ("register all memory at an address", "ibv_reg_mr", &["length SIZE_MAX", "has addr NULL"]),
    ("register without local write", "ibv_reg_mr", &["access is 0x2", "add IBV_ACCESS_LOCAL_WRITE"]),
    (
        "register at another address",
        "ibv_reg_mr_iova",
        &["0xfffffffffffffffc wrap", "pass a smaller address"],
    ),
    ("deregister nothing", "ibv_dereg_mr", &["ibv_mr is NULL", "check the result"]),
    ("deregister something else", "ibv_dereg_mr", &["no ibv_mr", "pass the pointer"]),
    ("deregister twice", "ibv_dereg_mr", &["the ibv_mr at 0x", "was destroyed before"]),
    ("completion queue without entries", "ibv_create_cq", &["cqe is 0", "at least 1"]),
    ("completion queue of negative size", "ibv_create_cq", &["cqe is -1", "at least 1"]),
    ("completion queue too large", "ibv_create_cq", &["cqe: ", "is 1073741824", "pass less"]),
    ("completion vector 3", "ibv_create_cq", &["comp_vector is 3", "only vector 0"]),
    ("completion timestamps", "ibv_create_cq_ex", &["cq_attr.wc_flags is 0x", "IBV_WC_STANDARD_FLAGS"]),
    ("resize to nothing", "ibv_resize_cq", &["cqe is 0", "at least 1"]),
    ("free a domain in use", "ibv_dealloc_pd", &["memory regions", "destroy them first", "EBUSY"]),
    ("destroy a channel in use", "ibv_destroy_comp_channel", &["completion queues", "destroy them first"]),
    ("wait for no channel", "ibv_get_cq_event", &["ibv_comp_channel is NULL"]),
    ("queue pair without completion queues", "ibv_create_qp", &["ibv_cq is NULL", "check the result"]),
    ("queue pair of type UC", "ibv_create_qp", &["qp_init_attr.qp_type is 3", "IBV_QPT_RC"]),
    ("too many requests", "ibv_create_qp", &["cap.max_send_wr", "is 1073741824", "pass less"]),
    ("too many elements of a send", "ibv_create_qp", &["cap.max_send_sge", "is 1000", "pass less"]),
    ("too much inline data", "ibv_create_qp", &["cap.max_inline_data", "is 1048576", "pass less"]),
    (
        "extended queue pair without a domain",
        "ibv_create_qp_ex",
        &["comp_mask lacks IBV_QP_INIT_ATTR_PD", "set it"],
    ),
    (
        "resize a shared receive queue",
        "ibv_modify_srq",
        &["srq_attr_mask has IBV_SRQ_MAX_WR", "create a larger one"],
    ),
    (
        "modify nothing of a shared receive queue",
        "ibv_modify_srq",
        &["srq_attr_mask is 0x0", "pass IBV_SRQ_LIMIT"],
    ),
    ("address handle without a GID", "ibv_create_ah", &["ah_attr.dlid is 0", "is_global"]),
    ("address of no datagram", "ibv_init_ah_from_wc", &["wc.wc_flags is 0x0", "IBV_WC_GRH"]),
    ("memory window", "ibv_alloc_mw", &["type is 3", "IBV_MW_TYPE_1"]),
    ("multicast", "ibv_attach_mcast", &["does not have the function", "support.md"]),
    ("no device memory", "ibv_alloc_dm", &["dm_attr.length is 0", "must not be 0"]),
    // States of queue pairs.
    ("RESET to RTS", "ibv_modify_qp", &["attr.qp_state is RTS", "is in RESET", "RESET, INIT, RTR, RTS"]),
    ("attributes of nothing", "ibv_modify_qp", &["attr is NULL"]),
    ("state SQD", "ibv_modify_qp", &["attr.qp_state SQD", "leave them out"]),
    ("INIT without a port", "ibv_modify_qp", &["attr_mask lacks IBV_QP_PORT", "set it"]),
    ("INIT with an address", "ibv_modify_qp", &["attr_mask has IBV_QP_AV", "leave it out"]),
    ("INIT at port 2", "ibv_modify_qp", &["attr.port_num is 2", "only possible value is 1"]),
    ("INIT with P_Key 1", "ibv_modify_qp", &["attr.pkey_index is 1", "only possible value is 0"]),
    ("RTR with MTU 9", "ibv_modify_qp", &["attr.path_mtu is 9", "pass 1 to 5"]),
    ("RTR without GID and LID", "ibv_modify_qp", &["ah_attr.is_global is 0", "exchange GIDs", "-g 0"]),
    ("RTR from GID 77", "ibv_modify_qp", &["sgid_index is 77", "entries"]),
    ("RTR to an empty GID", "ibv_modify_qp", &["dgid is ::", "ibv_query_gid"]),
    ("ERR to RTS", "ibv_modify_qp", &["is in ERR", "RESET first"]),
    ("destroy a queue in use", "ibv_destroy_cq", &["queue pairs still exist", "destroy them first"]),
    ("use a destroyed queue pair", "ibv_modify_qp", &["the ibv_qp at 0x", "was destroyed before"]),
    // Requests.
    ("send in RESET", "ibv_post_send", &["is in state RESET", "move it to RTS"]),
    ("receive in RESET", "ibv_post_recv", &["is in state RESET", "move it to RTS"]),
    ("send in INIT", "ibv_post_send", &["is in state INIT", "receives only"]),
    (
        "receive queue full",
        "ibv_post_recv",
        &["receive queue is full", "poll its completions first", "ENOMEM"],
    ),
    ("unknown operation", "ibv_post_send", &["wr.opcode is", "support.md"]),
    ("negative number of elements", "ibv_post_send", &["wr.num_sge is -1", "pass the length"]),
    ("no list of elements", "ibv_post_send", &["wr.sg_list is NULL", "pass the elements"]),
    ("too many elements", "ibv_post_send", &["wr.num_sge: ", "is 3, but at most 2", "pass less"]),
    (
        "inline data too long",
        "ibv_post_send",
        &["cap.max_inline_data: ", "is 1000, but at most 64", "pass less"],
    ),
    ("inline read", "ibv_post_send", &["inline data"]),
    ("inline data at NULL", "ibv_post_send", &["address NULL", "pass the data"]),
    ("poll for -1", "ibv_poll_cq", &["num_entries is -1", "pass the length"]),
    ("send queue full", "ibv_post_send", &["send queue is full", "poll its completions first", "ENOMEM"]),
    // Completions with errors.
    (
        "write to a deregistered region",
        "ibv_poll_cq",
        &[
            "wr_id 7 (RDMA write)",
            "to qp 0x",
            "IBV_WC_REM_ACCESS_ERR",
            "with rkey 0x",
            "deregister",
            "4096 bytes at 0x",
        ],
    ),
    ("write without the right", "ibv_poll_cq", &["with rkey 0x", "register it with IBV_ACCESS_REMOTE_WRITE"]),
    (
        "write beyond the region",
        "ibv_poll_cq",
        &["64 bytes at 0x", "not all of them are in the region", "check address"],
    ),
    ("write to another domain", "ibv_poll_cq", &["another protection domain", "register it in that"]),
    ("unknown lkey", "ibv_poll_cq", &["IBV_WC_LOC_PROT_ERR", "sg_list[0]", "lkey 0x1234"]),
    (
        "message longer than its receive",
        "ibv_poll_cq",
        &["IBV_WC_REM_INV_REQ_ERR", "message of 64 bytes", "larger receives"],
    ),
    (
        "receive shorter than its message",
        "ibv_poll_cq",
        &["wr_id 9 (receive)", "IBV_WC_LOC_LEN_ERR", "larger receives"],
    ),
    ("no receive posted", "ibv_poll_cq", &["IBV_WC_RNR_RETRY_EXC_ERR", "post receives"]),
    ("receive with an unknown lkey", "ibv_poll_cq", &["IBV_WC_REM_OP_ERR", "check its lkey"]),
    ("atomic at an odd address", "ibv_poll_cq", &["wr_id 7 (fetch and add)", "multiple of 8", "align it"]),
    ("peer gone", "ibv_poll_cq", &["IBV_WC_RETRY_EXC_ERR", "gone"]),
    // librdmacm.
    ("unknown port space", "rdma_create_id", &["ps is 0x77", "pass RDMA_PS_TCP"]),
    ("identifier into nothing", "rdma_create_id", &["id is NULL"]),
    ("bind to nothing", "rdma_bind_addr", &["addr is NULL"]),
    ("bind to a Unix address", "rdma_bind_addr", &["addr.sa_family is 1", "AF_INET"]),
    (
        "bind to another host",
        "rdma_bind_addr",
        &["addr: 192.0.2.1 is no address of this host", "EADDRNOTAVAIL"],
    ),
    ("bind twice", "rdma_bind_addr", &["the id is bound", "create another"]),
    (
        "bind to a port in use",
        "rdma_bind_addr",
        &["is taken by another id", "use another port", "EADDRINUSE"],
    ),
    ("listen twice", "rdma_listen", &["the id listens", "create another"]),
    ("route without an address", "rdma_resolve_route", &["call rdma_resolve_addr first"]),
    ("connect without a route", "rdma_connect", &["call rdma_resolve_addr and rdma_resolve_route first"]),
    ("accept nothing", "rdma_accept", &["no connect request", "CONNECT_REQUEST"]),
    ("reject nothing", "rdma_reject", &["no connect request", "CONNECT_REQUEST"]),
    ("disconnect nothing", "rdma_disconnect", &["nothing to disconnect"]),
    ("queue pair without a device", "rdma_create_qp", &["the id has no device", "rdma_resolve_addr first"]),
    ("resolve nothing", "rdma_resolve_addr", &["dst_addr is NULL"]),
    ("option of another level", "rdma_set_option", &["level is 5", "RDMA_OPTION_ID", "ENOSYS"]),
    ("option of another size", "rdma_set_option", &["optlen is 1", "has 4 bytes"]),
    ("request of a listener with a channel", "rdma_get_request", &["event channel", "without a channel"]),
    ("use a destroyed identifier", "rdma_listen", &["the rdma_cm_id at 0x", "was destroyed before"]),
    ("name of a service", "rdma_getaddrinfo", &["service is 'http'", "pass a port number"]),
    ("name of no host", "rdma_getaddrinfo", &["node 'no.such.host.invalid'", "check its spelling"]),
    ("endpoint of nothing", "rdma_create_ep", &["res is NULL"]),
    ("event of no channel", "rdma_get_cm_event", &["rdma_event_channel is NULL"]),
    (
        "queue pair of type UD for a connection",
        "rdma_create_qp",
        &["qp_init_attr.qp_type is 4", "IBV_QPT_RC"],
    ),
    ("second queue pair", "rdma_create_qp", &["has a queue pair already", "rdma_destroy_qp first"]),
    ("too much private data", "rdma_connect", &["private_data_len is 255", "at most 56"]),
    ("no listener", "rdma_connect", &["127.0.0.1:1", "has no listener"]),
];

/// Runs misuse.c; returns what it writes after the line that announces each mistake.
fn misuse(names: &Names, device: &str, variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut program = names.command(names.path().join("program"), device);
    program.env_remove("NICETY_LOG").envs(variables.iter().copied());
    let output = end(program.spawn().expect("it starts"), "misuse");
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stderr).expect("text");
    let sections = text.split("== ").skip(1);
    sections
        .map(|section| section.split_once('\n').expect("a line"))
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect()
}

/// Compares what a program wrote for each mistake with the table.
fn compare(sections: &BTreeMap<String, String>, device: &str) {
    let mut wrong = Vec::new();
    for (name, call, words) in MISTAKES {
        let text = sections.get(*name).map(String::as_str).unwrap_or_default();
        let start = format!("nicety: {call}: ");
        // The event of a failed queue pair gives a line at any time.
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(&start)).collect();
        if !matches!(lines[..], [line] if words.iter().all(|word| line.contains(word))) {
            wrong.push(format!("{name}: not one line of {call} with {words:?}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{device}:\n{}", wrong.join("\n"));
    let known = MISTAKES.len() + 1;
    assert_eq!(sections.len(), known, "{device}: the table has all mistakes");
}

#[test]
fn misuse_is_explained() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    compile(&names, "misuse.c");
    let sections = misuse(&names, "shm", &[("NICETY_LOG", "errors")]);
    compare(&sections, "shm");
    let counted = "nicety: 2 more like this one: ibv_post_send: the send queue is full";
    assert!(sections["end"].contains(counted), "{}", sections["end"]);

    let quiet = misuse(&names, "shm", &[]);
    assert!(
        quiet.values().all(String::is_empty),
        "nothing is written unless the variable asks for it: {quiet:?}"
    );

    let file = names.path().join("log");
    let quiet = misuse(&names, "shm", &[("NICETY_LOG", &format!("calls:{}", file.display()))]);
    assert!(quiet.values().all(String::is_empty), "{quiet:?}");
    let log = std::fs::read_to_string(file).expect("the log");
    for line in [
        "nicety: ibv_alloc_pd(0x",
        "nicety: ibv_post_send(0x",
        "wr_id 7 opcode 0",
        "status 10",
        "nicety: ibv_modify_qp: attr.qp_state",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
}

/// On iwarp the peer says in a Terminate what is wrong, so that the same mistakes are explained.
#[test]
fn failed_requests_are_explained_on_iwarp() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    compile(&names, "misuse.c");
    let sections = misuse(&names, "iwarp", &[("NICETY_LOG", "errors")]);
    for (name, words) in [
        ("write to a deregistered region", ["no region with this rkey", "deregister after"]),
        ("write without the right", ["with rkey 0x", "IBV_ACCESS_REMOTE_WRITE"]),
        ("write beyond the region", ["64 bytes at 0x", "check address and length"]),
        ("write to another domain", ["another protection domain", "register it"]),
        ("unknown lkey", ["sg_list[0]", "lkey 0x1234"]),
        ("message longer than its receive", ["a message of 64 bytes", "larger receives"]),
        ("no receive posted", ["IBV_WC_RNR_RETRY_EXC_ERR", "post receives"]),
        ("receive with an unknown lkey", ["IBV_WC_REM_OP_ERR", "lkey"]),
        ("atomic at an odd address", ["multiple of 8", "align it"]),
        ("peer gone", ["wr_id 7 (RDMA write)", "IBV_WC_"]),
    ] {
        let text = &sections[name];
        assert!(words.iter().all(|word| text.contains(word)), "{name}: {words:?}: {text}");
    }
}

/// A port of another address than 127.0.0.1 has no LID. ibv_rc_pingpong exchanges LIDs unless it is asked for a GID, and says only that it could not connect.
#[test]
fn pingpong_without_a_gid_is_explained() {
    if !common::has("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let names = Names::new();
    let port = common::free_port().to_string();
    let start = |words: &[&str]| {
        let mut command: Command = names.command("ibv_rc_pingpong", "iwarp@127.0.0.2");
        command.env("NICETY_LOG", "errors").args(["-p", &port]).args(words);
        command.spawn().expect("it starts")
    };
    let mut server = start(&[]);
    common::await_listener(port.parse().expect("a port"), &mut server);
    let outputs = [start(&["127.0.0.1"]), server].map(|child| said(&end(child, "ibv_rc_pingpong")));
    let line = "nicety: ibv_modify_qp: ah_attr.is_global is 0";
    assert!(outputs.iter().any(|output| output.contains(line) && output.contains("-g 0")), "{outputs:?}");
}

/// The guide shows the program, and the lines that it gives before each of its mistakes is mended.
#[test]
fn guide_shows_what_the_log_says() {
    if !has_compiler() {
        return;
    }
    let guide = include_str!("../../../docs/guides/why.md");
    let (_, rest) = guide.split_once("```c\n").expect("a program");
    let (first, _) = rest.split_once("```").expect("its end");
    let second = first.replace("MAX_DEST_RD_ATOMIC)", "MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)");
    let third =
        second.replace("IBV_ACCESS_LOCAL_WRITE)", "IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)");
    let names = Names::new();
    for (source, code) in [(first, 1), (&second, 1), (&third, 0)] {
        let (file, program) = (names.path().join("loop.c"), names.path().join("program"));
        std::fs::write(&file, source).expect("written");
        let mut cc = Command::new("cc");
        cc.arg("-o").arg(&program).arg(&file).arg(names.path().join("libibverbs.so.1"));
        assert!(cc.status().expect("cc runs").success());
        let mut command = names.command(&program, "shm");
        let output = end(command.env("NICETY_LOG", "errors").spawn().expect("it starts"), "loop");
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        for line in said(&output).lines().filter(|line| line.starts_with("nicety: ibv_")) {
            let is_shown = guide.lines().any(|shown| without_numbers(shown) == without_numbers(line));
            assert!(is_shown, "the guide lacks: {line}");
        }
    }
}

/// A line without its numbers and addresses.
fn without_numbers(line: &str) -> String {
    let is_number =
        |word: &&str| word.trim_start_matches('(').starts_with(|letter: char| letter.is_ascii_digit());
    line.split(' ').filter(|word| !is_number(word)).collect::<Vec<_>>().join(" ")
}
