//! The list of all tests, as macros that expand to lists and `#[test]` functions.

/// Creates one `#[test]` per test of the suite, in a module per group, from an expression of a type that implements
/// [`Fixture`](crate::Fixture). With `, threads` the tests that spawn threads are included: for NICs in real time.
///
/// ```ignore
/// mod conformance {
///     conformance::tests!(super::Loopback, threads);
/// }
/// ```
#[macro_export]
macro_rules! tests {
    ($fixture:expr) => {
        fn fixture() -> impl $crate::Fixture {
            $fixture
        }
        $crate::__conformance_table!(__conformance_tests);
    };
    ($fixture:expr, threads) => {
        $crate::tests!($fixture);
        $crate::__conformance_threads!(__conformance_tests);
    };
}

/// One module of `#[test]` functions per group.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ($($group:ident { $($name:ident)* })*) => {
        $(mod $group {
            $(#[test]
            fn $name() {
                $crate::run(
                    &super::fixture(),
                    concat!(stringify!($group), "::", stringify!($name)),
                );
            })*
        })*
    };
}

/// A list of [`Test`](crate::Test)s.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_list {
    ($($group:ident { $($name:ident)* })*) => {
        &[$($(Test { group: stringify!($group), name: stringify!($name), body: $group::$name },)*)*]
    };
}

/// The single-threaded tests, by group; passed to the macro named `then`.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_table {
    ($then:ident) => {
        $crate::$then! {
            objects {
                attributes_make_sense
                queue_pairs_of_nothing_are_refused
                queue_pairs_beyond_limits_are_refused
                completion_queue_sizes_are_checked
                nic_memory_is_zeroed
                nic_memory_reports_its_kind
                nic_memory_is_freed
                nic_memory_is_disjoint
                foreign_queues_are_refused
                foreign_nic_memory_is_refused
                every_order_of_dropping
                queue_pairs_keep_what_they_need
                objects_come_and_go
                many_queue_pairs_at_once
                connections_share_a_device
            }
            memory {
                addresses_are_as_documented
                impossible_rights_are_refused
                impossible_ranges_are_refused
                slices_are_regions_of_their_own
                overlapping_regions_keep_their_rights
                deregistering_spares_the_other_region
                keys_are_fresh
                keys_are_distinct
                regions_come_and_go
                deregistering_keeps_the_bytes
                regions_keep_their_memory
                host_memory_on_two_devices
            }
            reg_all {
                all_memory_is_local_memory
                peers_reach_all_memory
                atomics_reach_all_memory
                an_address_without_memory_fails
                rights_are_those_given
                key_is_invalid_after_deregistration
            }
            lost_memory {
                registering_checks_accessibility
                a_peers_request_to_it_fails
                a_source_that_is_lost_fails
                results_into_it_fail
                a_receive_into_it_fails
                a_shared_receive_into_it_fails
                other_connections_survive_lost_memory
                failure_flushes_later_requests
                a_read_behind_an_answered_one_fails
            }
            map {
                stores_arrive_at_both_ends
                requests_and_stores_meet
                only_what_the_key_allows
                only_while_connected
                mapping_outlives_region_and_connection
            }
            send_recv {
                every_size_arrives
                odd_addresses_arrive
                a_mebibyte_arrives
                sixteen_mebibytes_arrive
                both_directions_work
                a_longer_receive_keeps_its_rest
                a_short_message_ends_in_any_piece
                too_long_a_message_fails_both
                too_long_a_message_stays_inside
                receives_are_consumed_in_order
                pieces_are_gathered_and_scattered
                overlapping_pieces_may_be_gathered
                empty_pieces_are_not_checked
                send_empty_pieces_ignore_bad_lkey
                recv_zero_bytes_ignores_bad_lkey
                send_inv_right_behind_a_wait_completes
                recv_pieces_behind_the_end_ignore_bad_lkey
                recv_one_byte_into_bad_lkey_fails
                no_pieces_is_an_empty_message
                ten_thousand_messages_in_order
            }
            send_forms {
                immediate_data_arrives
                immediate_data_alone_arrives
                immediate_data_does_not_linger
                invalidated_keys_are_dead
                invalidating_spares_other_keys
                invalidating_an_unknown_key_fails
                invalidating_a_foreign_key_fails
                inline_data_is_copied_at_the_call
                inline_data_waits_as_a_copy
                too_much_inline_data_is_refused
                inline_needs_an_operation_that_sends
                unsignaled_sends_have_no_completion
                sq_sig_all_signals_everything
                lists_are_posted_in_order
                invalid_list_reports_posted_count
            }
            write {
                every_size_arrives
                every_alignment_arrives
                sixteen_mebibytes_arrive
                the_whole_region_can_be_written
                pieces_are_gathered
                inline_data_is_written
                empty_writes_succeed
                the_last_write_wins
                the_target_needs_no_completion
                the_last_byte_seen_means_all_seen
                write_with_immediate_delivers
                write_with_immediate_needs_no_room
                write_imm_ignores_bad_lkey_of_its_receive
                write_with_immediate_inline
                a_send_announces_earlier_writes
                both_directions_at_once
            }
            read {
                every_size_arrives
                every_alignment_arrives
                sixteen_mebibytes_arrive
                the_whole_region_can_be_read
                pieces_are_scattered
                empty_reads_succeed
                remote_read_is_right_enough
                a_read_sees_earlier_writes
                a_fence_waits_for_reads
                more_reads_than_may_be_outstanding
                both_directions_at_once
                the_peer_takes_no_part
            }
            atomics {
                compare_and_swap_swaps
                compare_and_swap_leaves
                fetch_and_add_adds
                fetch_and_add_wraps
                words_at_both_ends
                unaligned_targets_are_refused
                the_result_goes_anywhere
                the_result_has_eight_bytes
                increments_from_both_ends_add_up
                pipelined_atomics_are_ordered
                processor_atomics_mix_with_remote_atomics
                more_atomics_than_may_be_outstanding
            }
            placement {
                sends
                writes
                writes_with_immediate
                reads
                both_kinds_in_one_message
            }
            remote_violations {
                a_wrong_key
                keys_at_both_ends
                a_key_of_a_foreign_domain
                one_byte_past_the_end
                right_behind_the_end
                one_byte_before_the_start
                across_into_a_neighbour
                a_missing_right
                a_local_region
                a_deregistered_region
                a_stale_key
                an_address_that_overflows
                the_other_kinds_address
                a_long_message_is_checked_whole
                the_target_gets_an_asynchronous_event
                other_connections_live_on
                rights_are_exactly_those_given
            }
            local_violations {
                a_wrong_key
                a_key_of_a_foreign_domain
                one_byte_past_the_end
                one_byte_before_the_start
                an_address_that_overflows
                a_deregistered_region
                results_need_local_write
                sources_need_no_right
                a_bad_piece_among_good_ones
                a_receive_with_a_wrong_key
                a_receive_in_a_foreign_domain
                a_receive_out_of_bounds
                a_receive_without_local_write
                a_receive_into_a_deregistered_region
            }
            order {
                completions_come_in_order
                one_completion_covers_those_before
                unsignaled_requests_are_flushed_with_entries
                receives_are_flushed_in_order
                waiting_sends_are_flushed_in_order
                posting_in_error_flushes
                an_unconnected_queue_pair_flushes
                failing_twice_is_once
                flushes_name_their_queue_pair
                both_directions_on_one_queue
            }
            limits {
                a_full_send_queue_refuses
                polling_frees_slots
                unsignaled_slots_are_freed_together
                a_full_receive_queue_refuses
                a_receive_queue_fills_before_connecting
                queues_fill_in_the_error_state
                too_many_pieces_are_refused
                as_many_pieces_as_allowed
                too_long_a_message_is_refused
                a_list_fills_the_queue
                a_completion_queue_overruns
                a_receive_completion_queue_overruns
                a_completion_queue_holds_its_entries
                refused_requests_leave_no_trace
            }
            states {
                init_takes_receives_only
                connecting_sends_nothing
                connecting_twice_is_refused
                connecting_while_connecting_is_refused
                accepting_twice_is_refused
                error_is_the_end
                connected_is_ready_to_send
            }
            rnr {
                a_message_waits_for_its_receive
                the_receiver_alone_can_wait
                a_write_with_immediate_waits
                requests_behind_stay_in_order
                no_retries_fail_at_once
                few_retries_end
                no_retries_need_none
                the_peers_limit_counts
                own_retry_limit_overrides_peers
                a_long_pause_is_kept
                full_completion_queue_is_not_rnr
                both_ends_may_wait
                waiting_messages_are_released_in_order
            }
            srq {
                two_queue_pairs_share
                an_empty_shared_queue_makes_wait
                shared_recv_ignores_bad_lkey_where_no_byte_lands
                a_full_shared_queue_refuses
                its_queue_pairs_take_no_receives
                too_many_pieces_are_refused
                the_limit_is_reported_once
                a_limit_that_was_reported_reads_zero
                the_limit_has_limits
                a_failed_queue_pair_leaves_the_rest
                the_last_receive_is_reported_once
                the_last_receive_is_reported_when_the_peer_leaves
                no_last_receive_without_a_shared_queue
                a_long_message_fails_its_own_queue_pair
                sizes_are_checked
            }
            cq {
                an_empty_queue_gives_nothing
                slices_of_any_size
                the_rest_of_a_slice_is_untouched
                many_queue_pairs_on_one_queue
                directions_have_their_own_queues
                the_ring_wraps
                waits_end_at_their_deadline
                numbers_tell_queues_apart
                handles_share_the_queue
                queue_is_resized queue_cannot_shrink_below_pending
            }
            notify {
                one_event_per_arming
                no_event_without_arming
                completions_already_there_do_not_count
                solicited_only
                arming_for_any_overrides
                writes_with_immediate_are_solicited
                failures_count_as_solicited
                the_descriptor_is_readable
                arming_needs_a_channel
                channels_belong_to_a_device
                several_queues_on_a_channel
                send_completions_notify
                arm_poll_sleep_misses_nothing
                notifying_writes_complete_as_writes
                asynchronous_events_can_be_awaited
                the_asynchronous_descriptor_is_readable
            }
            connect {
                private_data_arrives
                too_much_private_data_is_refused
                accepting_with_too_much_rejects
                rejections_carry_data
                rejecting_with_too_much_still_rejects
                dropping_a_request_rejects
                a_rejected_queue_pair_connects_again
                an_unanswered_request_times_out
                the_connecting_side_vanishes
                a_foreign_queue_pair_cannot_accept
                a_foreign_queue_pair_cannot_connect
                data_right_after_established
                the_passive_side_may_send_first
                a_device_connects_to_itself
                one_channel_for_both_ends
                both_ends_report_addresses_and_depths
                without_a_queue_pair
                without_a_queue_pair_at_one_end
                request_dies_with_connecting_side
                identifiers_are_rejected
                identifiers_come_and_go
                waiting_for_events_times_out
                the_descriptor_is_readable
            }
            pairing {
                request_waits_until_pair_is_asked_for
                either_side_may_come_first
                many_pairs_are_not_mixed_up
                two_qps_of_one_side_are_paired
                qp_is_connected_to_itself
                foreign_requests_are_refused_or_returned
                waiting_request_for_destroyed_qp_is_refused
                reused_numbers_pair_new_qps
                number_encodes_port_of_its_side
                pair_reconnects_in_any_order
            }
            stand_in {
                completions_carry_the_reported_number
                replaced_qp_leaves_nothing
                a_message_that_waits_never_reaches_the_next
                rounds_in_any_order
                a_shared_queue_loses_no_room
                other_queue_pairs_continue
            }
            firmware {
                commands_are_carried_out_in_order
                messages_carry_header_and_payload
                messages_are_matched_on_the_nic
                the_target_fetches
                memory_is_checked
                addresses_come_and_go
                turns_come_once_per_request
                full_queues_are_reported
                charges_are_time_of_the_nic
            }
            listen {
                nobody_listens
                a_dropped_listener_refuses
                port_zero_chooses
                a_port_is_taken_once
                the_backlog_waits
                requests_are_answered_in_any_order
                dropped_listener_answers_waiting_requests
                a_taken_request_outlives_its_listener
                sixty_four_connections
            }
            screen {
                passing_request_carries_screen_value
                without_a_screen_there_is_no_value
                failing_request_is_rejected_without_event
                too_long_reject_data_is_not_sent
                rejected_requests_occupy_no_backlog
            }
            ports {
                a_bound_port_is_taken
                a_bound_port_can_be_listened_at
                a_connection_comes_from_its_bound_port
                connections_without_a_queue_pair_come_from_a_bound_port
                a_refused_connect_keeps_its_port
                a_port_outlives_its_listener
                a_port_serves_one_at_a_time
                port_is_free_after_drop
                foreign_ports_are_refused
            }
            disconnect {
                the_active_side_disconnects
                the_passive_side_disconnects
                both_sides_disconnect
                disconnecting_twice_is_once
                only_connections_disconnect
                the_error_state_disconnects
                dropping_a_queue_pair_disconnects
                messages_received_before_disconnect_complete
                completions_survive_the_end
                completions_are_known_until_they_are_polled
                an_empty_queue_after_the_end_stays_empty
                a_short_connection_begins_and_ends
                a_new_queue_pair_reconnects
                other_connections_stay
                connections_outlive_their_channel
            }
            vanish {
                waiting_sends_end_with_errors
                waiting_receives_are_flushed
                a_poller_notices_that_a_waiting_sender_left
                acceptor_destroyed_right_after_accept
                other_connections_carry_on
                a_successor_takes_over
                posting_to_dead_peer_completes_with_error
                connections_come_and_go
                memory_goes_before_its_user
            }
            large {
                a_gibibyte_each_way
                a_large_message_out_of_bounds
                large_and_small_in_order
            }
            random {
                a_long_walk
                many_short_walks
            }
        }
    };
}

/// The tests that spawn threads.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_threads {
    ($then:ident) => {
        $crate::$then! {
            threads {
                several_posters
                several_pollers
                an_empty_queue_after_the_end_stays_empty
                ping_pong_between_threads
                atomics_from_several_threads
                deregistering_under_fire
                failing_under_fire
                no_request_executes_after_a_failure
                vanishing_under_fire
                connecting_from_several_threads
                making_objects_from_several_threads
                sleepers_are_woken
                notifying_writes_wake_sleepers
                notify_calls_wake_sleepers
                last_byte_seen_implies_whole_write
                one_wait_for_several_sources
                asynchronous_events_wake_sleepers
                interrupts_wake_sleepers
            }
        }
    };
}
