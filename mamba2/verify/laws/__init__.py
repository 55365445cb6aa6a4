"""The law book: what every Mamba-2 must satisfy, as plain functions of an implementation and a case.

    law  scan conv block model  needs                     says
    L1    ·    ·    ·     ·                               shapes follow from the sizes alone
    L2    ·    ·    ·     ·                               a run is the textbook: the float64 loop of `verify.reference`
    L3    ·    ·    ·     ·     step                      a run is a prefill of any length and then steps
    L4    ·    ·    ·     ·     state, resume             stopping anywhere and going on changes nothing
    L5    ·         ·     ·                               the chunk changes nothing
    L6    ·    ·    ·     ·                               the past does not see the future
    L7    ·    ·    ·     ·                               a sequence does not see the others of its batch
    L8              ·     ·     padding                   pads are as if they were not there
    L9              ·     ·     packing                   packed sequences do not know of each other
    L10   ·         ·     ·     groups                    head h reads group ⌊h·G/H⌋
    L11             ·     ·                               dt is softplus, then limits, once, on every path
    L12   ·    ·    ·     ·                               precision is that of the dtype
    L13   ·    ·    ·     ·                               what is finite stays finite
    L14   ·    ·    ·     ·     gradients                 gradients are the textbook's
    L15   ·    ·    ·     ·     state                     a state is a value
    L16   ·    ·    ·     ·                               the memory layout changes nothing
    L17   ·    ·    ·     ·     errors                    wrong sizes are refused by name
    L18   ·    ·    ·     ·     (compile)                 every path, also compiled, is the same function
    L19             ·     ·     save                      saving and loading changes nothing
    L20   ·    ·    ·     ·     offsets                   offsets have 64 bits
    L21   ·    ·    ·     ·                               the smallest sizes work or are refused
    L22             ·     ·     state, resume, positions  positions left out go on from the state

The convolution has no chunks and no groups; its pads and packed sequences are the block's, which alone knows the mask.
"""

from mamba2.verify.laws.calculus import gradients_are_the_textbooks
from mamba2.verify.laws.law import LAWS, Law, law
from mamba2.verify.laws.paths import (
    a_run_is_a_prefill_and_then_steps,
    packed_sequences_do_not_know_of_each_other,
    pads_are_as_if_they_were_not_there,
    positions_left_out_go_on_from_the_state,
    stopping_and_going_on_changes_nothing,
    the_chunk_changes_nothing,
    the_past_does_not_see_the_future,
)
from mamba2.verify.laws.rows import a_sequence_does_not_see_the_others, a_state_is_a_value
from mamba2.verify.laws.surroundings import (
    compiled_it_is_the_same_function,
    every_path_is_the_same_function,
    offsets_have_64_bits,
    saving_and_loading_changes_nothing,
    the_memory_layout_changes_nothing,
    wrong_sizes_are_refused_by_name,
)
from mamba2.verify.laws.values import (
    a_run_is_the_textbook,
    dt_is_softplus_then_limits_once_on_every_path,
    head_h_reads_group_h_G_over_H,
    precision_is_that_of_the_dtype,
    shapes_follow_from_the_sizes_alone,
    the_smallest_sizes_work_or_are_refused,
    what_is_finite_stays_finite,
)

__all__ = [
    "LAWS",
    "Law",
    "a_run_is_a_prefill_and_then_steps",
    "a_run_is_the_textbook",
    "a_sequence_does_not_see_the_others",
    "a_state_is_a_value",
    "compiled_it_is_the_same_function",
    "dt_is_softplus_then_limits_once_on_every_path",
    "every_path_is_the_same_function",
    "gradients_are_the_textbooks",
    "head_h_reads_group_h_G_over_H",
    "law",
    "offsets_have_64_bits",
    "packed_sequences_do_not_know_of_each_other",
    "pads_are_as_if_they_were_not_there",
    "positions_left_out_go_on_from_the_state",
    "precision_is_that_of_the_dtype",
    "saving_and_loading_changes_nothing",
    "shapes_follow_from_the_sizes_alone",
    "stopping_and_going_on_changes_nothing",
    "the_chunk_changes_nothing",
    "the_memory_layout_changes_nothing",
    "the_past_does_not_see_the_future",
    "the_smallest_sizes_work_or_are_refused",
    "what_is_finite_stays_finite",
    "wrong_sizes_are_refused_by_name",
]
