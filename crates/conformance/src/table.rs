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
                attributes_are_consistent
                queue_pairs_without_entries_are_refused
                queue_pairs_beyond_limits_are_refused
                completion_queue_sizes_are_checked
                nic_memory_is_zeroed
                nic_memory_reports_its_kind
                nic_memory_is_freed
                nic_memory_is_disjoint
                foreign_queues_are_refused
                foreign_nic_memory_is_refused
                objects_drop_in_any_order
                queue_pair_keeps_its_domain_and_queues
                created_and_dropped_objects_leak_nothing
                many_queue_pairs_have_distinct_numbers
                connections_share_a_device
            }
            memory {
                region_address_follows_memory_kind
                remote_write_without_local_write_is_refused
                empty_and_outside_ranges_are_refused
                region_of_a_slice_covers_exactly_the_slice
                overlapping_regions_keep_their_rights
                dereg_keeps_overlapping_region
                reregistered_memory_gets_new_keys
                keys_are_distinct
                registered_and_deregistered_regions_leak_nothing
                dereg_does_not_change_memory
                regions_keep_their_memory
                host_memory_works_on_two_devices
            }
            reg_all {
                all_memory_is_local_memory
                peers_reach_all_memory
                atomics_reach_all_memory
                request_to_unmapped_address_fails
                region_of_all_memory_grants_given_rights_only
                key_is_invalid_after_deregistration
            }
            placed {
                region_at_another_address_is_used_by_it
                own_address_is_outside_of_a_region_at_another_one
                changed_rights_apply_to_the_same_keys
                changed_domain_applies
                changed_memory_replaces_the_former
                memory_on_demand_may_be_mapped_later
            }
            windows {
                window_covers_exactly_its_part
                unbound_and_freed_windows_give_no_access
                window_has_the_rights_of_its_binding
                wrong_bindings_are_refused
                type_1_is_bound_again_and_unbound
                type_2_is_invalidated_before_it_is_bound_again
                only_the_owner_invalidates
                windows_of_type_2_belong_to_a_queue_pair
                window_is_no_local_key
                windows_end_with_their_region
                windows_complete_in_order_and_leak_nothing
            }
            lost_memory {
                registering_checks_accessibility
                peer_request_to_lost_memory_fails
                request_with_lost_source_fails
                result_into_lost_memory_fails
                receive_into_lost_memory_fails
                shared_receive_into_lost_memory_fails
                other_connections_survive_lost_memory
                failure_flushes_later_requests
                a_read_behind_an_answered_one_fails
            }
            map {
                stores_arrive_at_both_ends
                requests_and_stores_access_the_same_bytes
                map_without_right_is_refused
                map_of_unconnected_queue_pair_is_refused
                mapping_outlives_region_and_connection
            }
            send_recv {
                every_size_arrives
                odd_addresses_arrive
                a_mebibyte_arrives
                sixteen_mebibytes_arrive
                accepting_side_can_send
                longer_receive_keeps_its_rest
                short_message_may_end_in_any_piece
                too_long_message_fails_both_ends
                too_long_message_writes_nothing_outside
                receives_are_consumed_in_order
                pieces_are_gathered_and_scattered
                overlapping_pieces_may_be_gathered
                empty_pieces_are_not_checked
                send_empty_pieces_ignore_bad_lkey
                recv_zero_bytes_ignores_bad_lkey
                send_inv_right_behind_a_wait_completes
                recv_pieces_behind_the_end_ignore_bad_lkey
                recv_one_byte_into_bad_lkey_fails
                message_without_pieces_is_empty
                ten_thousand_messages_in_order
            }
            send_forms {
                immediate_data_arrives
                immediate_data_alone_arrives
                send_after_immediate_has_no_immediate
                invalidated_key_is_refused
                invalidate_keeps_other_keys
                invalidating_an_unknown_key_fails
                invalidating_a_foreign_key_fails
                inline_data_is_copied_at_the_call
                inline_data_of_waiting_send_is_a_copy
                too_much_inline_data_is_refused
                inline_read_or_atomic_is_refused
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
                later_write_overwrites_earlier_one
                completed_write_is_visible_at_target
                visible_last_byte_implies_whole_write
                write_with_immediate_delivers
                write_imm_accepts_receive_of_any_size
                write_imm_ignores_bad_lkey_of_its_receive
                write_with_immediate_inline
                send_completion_implies_earlier_writes
                both_directions_at_once
            }
            read {
                every_size_arrives
                every_alignment_arrives
                sixteen_mebibytes_arrive
                the_whole_region_can_be_read
                pieces_are_scattered
                empty_reads_succeed
                read_needs_remote_read_only
                a_read_sees_earlier_writes
                a_fence_waits_for_reads
                reads_beyond_the_limit_are_held_back
                both_directions_at_once
                read_completes_without_peer_calls
            }
            atomics {
                matching_comparison_swaps
                failed_comparison_changes_nothing
                fetch_and_add_adds
                fetch_and_add_wraps
                first_and_last_word_are_accessible
                unaligned_targets_are_refused
                result_address_may_be_unaligned
                result_length_other_than_8_is_refused
                increments_from_both_ends_add_up
                pipelined_atomics_are_ordered
                processor_atomics_mix_with_remote_atomics
                atomics_beyond_the_limit_are_held_back
            }
            placement {
                sends_between_memory_kinds
                writes_between_memory_kinds
                writes_with_immediate_between_memory_kinds
                reads_between_memory_kinds
                host_and_nic_memory_mix_in_one_message
            }
            remote_violations {
                unknown_key_fails
                keys_zero_and_all_ones_fail
                key_of_other_domain_fails
                access_one_byte_past_the_end_fails
                access_right_after_the_end_fails
                access_one_byte_before_the_start_fails
                access_into_adjacent_region_fails
                missing_right_fails
                region_without_remote_rights_fails
                deregistered_region_fails
                stale_key_fails
                overflowing_address_fails
                address_of_other_memory_kind_fails
                long_message_is_checked_before_it_is_written
                the_target_gets_an_asynchronous_event
                other_connections_are_unaffected_by_violation
                region_grants_exactly_its_rights
            }
            local_violations {
                unknown_key_fails
                key_of_other_domain_fails
                access_one_byte_past_the_end_fails
                access_one_byte_before_the_start_fails
                overflowing_address_fails
                deregistered_region_fails
                results_need_local_write
                sources_need_no_right
                request_with_one_bad_piece_fails
                receive_with_unknown_key_fails
                receive_with_key_of_other_domain_fails
                receive_out_of_bounds_fails
                receive_without_local_write_fails
                receive_into_deregistered_region_fails
            }
            order {
                completions_come_in_order
                completion_implies_earlier_unsignaled_requests
                unsignaled_requests_are_flushed_with_entries
                receives_are_flushed_in_order
                waiting_sends_are_flushed_in_order
                posting_in_error_flushes
                to_error_flushes_unconnected_queue_pair
                to_error_twice_flushes_once
                failed_completion_names_request_and_queue_pair
                sends_and_receives_share_a_completion_queue
            }
            limits {
                post_send_to_full_queue_is_refused
                polling_frees_slots
                unsignaled_slots_are_freed_together
                post_recv_to_full_queue_is_refused
                unconnected_receive_queue_fills
                queues_fill_in_the_error_state
                too_many_pieces_are_refused
                maximum_number_of_pieces_works
                message_beyond_device_limit_is_refused
                list_longer_than_the_queue_is_posted_until_full
                overrun_of_send_cq_is_reported
                overrun_of_recv_cq_is_reported
                cq_holds_its_reported_entries
                refused_request_has_no_effect
            }
            states {
                init_takes_receives_only
                send_while_connecting_is_refused
                connecting_twice_is_refused
                connecting_while_connecting_is_refused
                accepting_twice_is_refused
                failed_queue_pair_cannot_connect_or_accept
                connected_is_ready_to_send
            }
            rnr {
                a_message_waits_for_its_receive
                receiver_calls_suffice_for_delivery
                a_write_with_immediate_waits
                requests_after_waiting_message_stay_in_order
                rnr_retry_zero_fails_waiting_message
                few_rnr_retries_are_exhausted
                rnr_retry_zero_delivers_if_receive_is_posted
                rnr_retry_limit_is_the_peers
                own_retry_limit_overrides_peers
                rnr_pause_applies_between_retries
                full_completion_queue_is_not_rnr
                both_ends_may_wait_for_receives
                waiting_messages_are_released_in_order
            }
            split {
                split_receives_follow_the_attribute
                long_message_fills_its_receive_and_waits
                messages_that_fit_are_received_whole
                messages_after_a_begun_one_wait
                rest_carries_immediate_data
                rest_may_have_several_elements
                post_rest_without_a_beginning_is_refused
                rest_longer_than_its_memory_fails
                rest_without_local_write_fails
                begun_message_survives_the_peers_end
                rest_is_flushed_in_error_state
            }
            srq {
                two_queue_pairs_take_shared_receives
                message_waits_for_shared_receive
                shared_recv_ignores_bad_lkey_where_no_byte_lands
                post_to_full_shared_queue_is_refused
                post_recv_to_queue_pair_with_srq_is_refused
                too_many_pieces_are_refused
                srq_limit_is_reported_once
                reported_srq_limit_reads_zero
                srq_limit_zero_disarms_and_excess_is_refused
                failed_queue_pair_leaves_shared_receives
                the_last_receive_is_reported_once
                the_last_receive_is_reported_when_the_peer_leaves
                no_last_receive_without_a_shared_queue
                too_long_message_fails_only_its_queue_pair
                srq_sizes_are_checked
            }
            cq {
                poll_of_empty_queue_returns_nothing
                poll_accepts_slices_of_any_size
                poll_leaves_rest_of_slice_unchanged
                many_queue_pairs_on_one_queue
                sends_and_receives_complete_on_their_queues
                cq_ring_wraps_without_loss
                wait_and_spin_end_at_their_deadline
                queues_have_distinct_numbers
                clones_share_the_queue
                queue_is_resized queue_cannot_shrink_below_pending
            }
            notify {
                one_event_per_arming
                no_event_without_arming
                pending_completions_cause_no_event
                arm_solicited_ignores_other_completions
                arm_any_overrides_arm_solicited
                writes_with_immediate_are_solicited
                failures_count_as_solicited
                the_descriptor_is_readable
                arming_needs_a_channel
                channels_belong_to_a_device
                channel_event_names_its_queue
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
                rejection_carries_private_data
                rejecting_with_too_much_still_rejects
                dropping_a_request_rejects
                a_rejected_queue_pair_connects_again
                an_unanswered_request_times_out
                accept_after_connecting_side_vanished
                a_foreign_queue_pair_cannot_accept
                a_foreign_queue_pair_cannot_connect
                data_may_follow_established_immediately
                the_passive_side_may_send_first
                a_device_connects_to_itself
                both_ends_may_share_channel_and_queue
                both_ends_report_addresses_and_depths
                connection_without_queue_pairs_is_made_and_ended
                connection_without_queue_pair_at_one_end_is_made
                request_is_not_alive_after_connecting_side_left
                identifiers_are_rejected
                connections_without_queue_pair_leak_nothing
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
            replaced_qp {
                completions_carry_the_reported_number
                replaced_qp_leaves_nothing
                a_message_that_waits_never_reaches_the_next
                rounds_in_any_order
                a_shared_queue_loses_no_room
                other_queue_pairs_continue
            }
            firmware {
                commands_are_executed_in_order
                messages_carry_header_and_payload
                messages_are_matched_on_the_nic
                target_program_fetches_payload
                program_memory_access_is_checked
                program_addresses_can_be_reused
                turns_come_once_per_request
                full_queues_are_reported
                charges_are_time_of_the_nic
            }
            listen {
                connect_without_listener_is_refused
                connect_to_dropped_listener_is_refused
                port_zero_chooses_a_free_port
                second_listener_on_a_port_is_refused
                requests_of_the_backlog_wait_in_order
                requests_are_answered_in_any_order
                dropped_listener_answers_waiting_requests
                a_taken_request_outlives_its_listener
                sixty_four_connections_can_be_pending
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
                second_disconnect_does_nothing
                disconnect_of_unconnected_queue_pair_is_refused
                to_error_disconnects_the_peer
                dropping_a_queue_pair_disconnects
                messages_received_before_disconnect_complete
                completions_can_be_polled_after_disconnect
                has_completed_until_completions_are_polled
                an_empty_queue_after_the_end_stays_empty
                short_connection_is_reported_established_and_disconnected
                a_new_queue_pair_reconnects
                other_connections_are_unaffected_by_disconnect
                connections_outlive_their_channel
            }
            peer_loss {
                waiting_sends_end_with_errors
                waiting_receives_are_flushed
                a_poller_notices_that_a_waiting_sender_left
                acceptor_destroyed_right_after_accept
                other_connections_are_unaffected_by_peer_loss
                survivor_reconnects_to_replacement
                posting_to_dead_peer_completes_with_error
                successive_connections_leak_nothing
                request_to_destroyed_peer_memory_fails
            }
            large {
                gibibyte_messages_arrive_both_ways
                a_large_message_out_of_bounds
                large_and_small_in_order
            }
            random {
                one_long_random_sequence
                many_short_random_sequences
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
                requests_of_several_posters_complete_once
                several_pollers_take_each_completion_once
                an_empty_queue_after_the_end_stays_empty
                ping_pong_between_threads
                atomics_from_several_threads
                dereg_during_writes_stops_them
                to_error_during_posts_completes_each_request
                no_request_executes_after_a_failure
                peer_destroyed_during_writes_fails_them
                connections_from_several_threads_are_independent
                several_threads_create_and_drop_objects
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
