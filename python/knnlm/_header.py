"""What include/knnlm.h declares, by python/make_header.py: not to be edited."""

from __future__ import annotations

import ctypes as c
from typing import Any

# Of each function what it returns, and its arguments.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {}

KNNLM_VERSION = "0.1.0"
KNNLM_OK = 0
KNNLM_EINVAL = 1
KNNLM_EIO = 2
KNNLM_EDATA = 3
KNNLM_ENOMEM = 4
KNNLM_ENOTSUP = 5
KNNLM_ESTOPPED = 6
KNNLM_EBUSY = 7
FUNCTIONS["knnlm_message"] = (c.c_char_p, [])
FUNCTIONS["knnlm_status_name"] = (c.c_char_p, [c.c_int])
FUNCTIONS["knnlm_version"] = (c.c_char_p, [])
FUNCTIONS["knnlm_kernels"] = (c.c_char_p, [c.c_size_t])
FUNCTIONS["knnlm_llama_release"] = (c.c_char_p, [])
FUNCTIONS["knnlm_llama_folder"] = (c.c_char_p, [])
FUNCTIONS["knnlm_mpi"] = (c.c_char_p, [])
FUNCTIONS["knnlm_free"] = (None, [c.c_void_p])
FUNCTIONS["knnlm_threads_set"] = (c.c_int, [c.c_int])
FUNCTIONS["knnlm_ranks_begin"] = (c.c_int, [])
FUNCTIONS["knnlm_rank"] = (c.c_int, [])
FUNCTIONS["knnlm_rank_count"] = (c.c_int, [])
FUNCTIONS["knnlm_ranks_serve"] = (c.c_int, [])
FUNCTIONS["knnlm_ranks_end"] = (c.c_int, [c.c_int])
FUNCTIONS["knnlm_shards_asked"] = (None, [c.c_void_p, c.c_void_p])


class knnlm_progress(c.Structure):
    _fields_ = [
        ("report", c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_char_p, c.c_uint64, c.c_uint64, c.c_char_p)),
        ("context", c.c_void_p),
    ]


KNNLM_PRECISION_AUTO = 0
KNNLM_PRECISION_F32 = 1
KNNLM_PRECISION_BF16 = 2
KNNLM_PRECISION_INT16 = 3
KNNLM_ENGINE_AUTO = 0
KNNLM_ENGINE_NATIVE = 1
KNNLM_ENGINE_LLAMA = 2


class knnlm_model_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("precision", c.c_int),
        ("engine", c.c_int),
        ("accept", c.c_bool),
        ("log", c.CFUNCTYPE(None, c.c_char_p, c.c_bool)),
        ("progress", knnlm_progress),
    ]


class knnlm_model_info(c.Structure):
    _fields_ = [
        ("path", c.c_char_p),
        ("architecture", c.c_char_p),
        ("engine", c.c_char_p),
        ("kernels", c.c_char_p),
        ("tokenizer", c.c_char_p),
        ("vocabulary", c.c_int32),
        ("width", c.c_int32),
        ("layers", c.c_int32),
        ("heads", c.c_int32),
        ("ffn", c.c_int32),
        ("context", c.c_int32),
        ("key_width", c.c_int32),
        ("parameters", c.c_uint64),
        ("file_bytes", c.c_uint64),
        ("fingerprint", c.c_char * 33),
        ("window", c.c_int32),
    ]


FUNCTIONS["knnlm_model_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_model_open"] = (c.c_int, [c.c_char_p, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_model_close"] = (None, [c.c_void_p])
FUNCTIONS["knnlm_model_describe"] = (None, [c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_model_encode"] = (c.c_int, [c.c_void_p, c.c_char_p, c.c_size_t, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_model_decode"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_model_encode_prompt"] = (c.c_int, [c.c_void_p, c.c_char_p, c.c_size_t, c.c_void_p, c.c_void_p, c.c_void_p])


class knnlm_score_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("score", c.c_int32),
        ("context", c.c_int32),
    ]


FUNCTIONS["knnlm_score_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_model_score"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_model_states"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_char_p, c.c_void_p, c.c_void_p])
KNNLM_DIMENSION_MAX = 65536
KNNLM_SEGMENT_MAX = 1 << 28
KNNLM_ENTRIES_MAX = 2**32 - 1
KNNLM_KEYS_F16 = 0
KNNLM_KEYS_F32 = 1
KNNLM_KEYS_INT8 = 2
KNNLM_KEYS_NONE = 3
KNNLM_DISTANCE_L2 = 0
KNNLM_DISTANCE_IP = 1
KNNLM_DISTANCE_COSINE = 2
KNNLM_SPLIT_FILE = 0
KNNLM_SPLIT_WIKI = 1
KNNLM_SPLIT_JSONL = 2
FUNCTIONS["knnlm_keys_name"] = (c.c_char_p, [c.c_int])
FUNCTIONS["knnlm_distance_name"] = (c.c_char_p, [c.c_int])
FUNCTIONS["knnlm_split_name"] = (c.c_char_p, [c.c_int])


class knnlm_input_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("split", c.c_int),
        ("encoding", c.c_char_p),
        ("field", c.c_char_p),
        ("name_field", c.c_char_p),
        ("name", c.c_char_p),
        ("include", c.c_void_p),
        ("exclude", c.c_void_p),
        ("include_count", c.c_size_t),
        ("exclude_count", c.c_size_t),
        ("hidden", c.c_bool),
        ("follow", c.c_bool),
        ("strict", c.c_bool),
        ("skipped", c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_char_p)),
        ("skipped_context", c.c_void_p),
    ]


FUNCTIONS["knnlm_input_options_init"] = (None, [c.c_void_p, c.c_size_t])


class knnlm_build_estimate(c.Structure):
    _fields_ = [
        ("text_bytes", c.c_uint64),
        ("entries", c.c_uint64),
        ("present", c.c_uint64),
        ("disk", c.c_uint64),
        ("disk_free", c.c_uint64),
        ("memory", c.c_uint64),
        ("seconds", c.c_double),
        ("tokens_per_second", c.c_double),
    ]


class knnlm_build_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("tap", c.c_char_p),
        ("min_context", c.c_int32),
        ("keys", c.c_int),
        ("distance", c.c_int),
        ("project", c.c_int32),
        ("segment", c.c_uint32),
        ("memory", c.c_uint64),
        ("split", c.c_int),
        ("split_given", c.c_bool),
        ("force", c.c_bool),
        ("planned", c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)),
        ("planned_context", c.c_void_p),
        ("progress", knnlm_progress),
        ("texts", c.POINTER(knnlm_input_options)),
        ("shards", c.c_size_t),
        ("local", c.c_char_p),
    ]


class knnlm_build_result(c.Structure):
    _fields_ = [
        ("documents_added", c.c_uint64),
        ("documents_unchanged", c.c_uint64),
        ("documents_replaced", c.c_uint64),
        ("documents_damaged", c.c_uint64),
        ("entries_added", c.c_uint64),
        ("text_bytes", c.c_uint64),
        ("documents", c.c_uint64),
        ("entries", c.c_uint64),
        ("bytes", c.c_uint64),
        ("resumed", c.c_bool),
        ("seconds", c.c_double),
        ("tokens_per_second", c.c_double),
        ("documents_removed", c.c_uint64),
    ]


FUNCTIONS["knnlm_build_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_build"] = (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_build_add"] = (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_build_sync"] = (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p])
knnlm_change_found = c.CFUNCTYPE(None, c.c_void_p, c.c_char, c.c_char_p, c.c_size_t)
FUNCTIONS["knnlm_build_compare"] = (c.c_int, [c.c_char_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p])


class knnlm_tuned(c.Structure):
    _fields_ = [
        ("known", c.c_bool),
        ("lambda", c.c_double),
        ("temperature", c.c_double),
        ("k", c.c_int64),
        ("probes", c.c_int64),
        ("codes", c.c_bool),
        ("cache", c.c_int64),
        ("cache_lambda", c.c_double),
        ("cache_temperature", c.c_double),
        ("distance_bins", c.c_uint32),
        ("entropy_bins", c.c_uint32),
        ("tokens", c.c_int64),
        ("seen", c.c_bool),
        ("seen_distance", c.c_double * 2),
        ("seen_entropy", c.c_double * 2),
        ("gate", c.c_bool),
        ("quick", c.c_bool),
        ("entries", c.c_int64),
    ]


class knnlm_store_info(c.Structure):
    _fields_ = [
        ("path", c.c_char_p),
        ("model", c.c_char_p),
        ("model_fingerprint", c.c_char_p),
        ("tokenizer", c.c_char_p),
        ("tokenizer_fingerprint", c.c_char_p),
        ("tap", c.c_char_p),
        ("split", c.c_char_p),
        ("entries", c.c_uint64),
        ("documents", c.c_uint64),
        ("removed_entries", c.c_uint64),
        ("removed_documents", c.c_uint64),
        ("bytes", c.c_uint64),
        ("commits", c.c_uint64),
        ("created", c.c_int64),
        ("format", c.c_int32),
        ("segments", c.c_size_t),
        ("segment", c.c_uint32),
        ("dimension", c.c_int32),
        ("model_dimension", c.c_int32),
        ("vocabulary", c.c_int32),
        ("window", c.c_int32),
        ("min_context", c.c_int32),
        ("keys", c.c_int),
        ("distance", c.c_int),
        ("complete", c.c_bool),
        ("has_tokenizer", c.c_bool),
        ("has_projection", c.c_bool),
        ("has_index", c.c_bool),
        ("tuned", knnlm_tuned),
    ]


class knnlm_segment(c.Structure):
    _fields_ = [
        ("file", c.c_uint64),
        ("first", c.c_uint64),
        ("entries", c.c_uint64),
        ("first_document", c.c_uint64),
        ("documents", c.c_uint64),
        ("bytes", c.c_uint64),
        ("text_checksum", c.c_uint64),
        ("keys_checksum", c.c_uint64),
        ("has_keys", c.c_bool),
    ]


class knnlm_document(c.Structure):
    _fields_ = [
        ("name", c.c_void_p),
        ("path", c.c_void_p),
        ("name_size", c.c_size_t),
        ("path_size", c.c_size_t),
        ("source_offset", c.c_uint64),
        ("bytes", c.c_uint64),
        ("tokens", c.c_uint64),
        ("hash", c.c_uint64 * 2),
        ("added", c.c_int64),
        ("first", c.c_uint64),
        ("entries", c.c_uint64),
        ("has_offsets", c.c_bool),
        ("removed", c.c_bool),
    ]


class knnlm_entry(c.Structure):
    _fields_ = [
        ("id", c.c_uint64),
        ("token", c.c_int32),
        ("document", c.c_uint32),
        ("position", c.c_uint64),
        ("offset", c.c_uint64),
        ("removed", c.c_bool),
    ]


FUNCTIONS["knnlm_store_open"] = (c.c_int, [c.c_char_p, c.c_void_p])
FUNCTIONS["knnlm_store_exists"] = (c.c_bool, [c.c_char_p])
FUNCTIONS["knnlm_store_close"] = (None, [c.c_void_p])
FUNCTIONS["knnlm_store_describe"] = (None, [c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_store_is_current"] = (c.c_bool, [c.c_void_p])
FUNCTIONS["knnlm_store_check_model"] = (c.c_int, [c.c_void_p, c.c_void_p])


class knnlm_shard(c.Structure):
    _fields_ = [
        ("path", c.c_char_p),
        ("host", c.c_char_p),
        ("rank", c.c_int),
        ("entries", c.c_uint64),
        ("documents", c.c_uint64),
        ("bytes", c.c_uint64),
    ]


FUNCTIONS["knnlm_store_shards"] = (c.c_size_t, [c.c_void_p])
FUNCTIONS["knnlm_store_shard"] = (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p])
FUNCTIONS["knnlm_store_segment"] = (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p])
FUNCTIONS["knnlm_store_document"] = (c.c_int, [c.c_void_p, c.c_uint64, c.c_void_p])
FUNCTIONS["knnlm_store_entry"] = (c.c_int, [c.c_void_p, c.c_uint64, c.c_void_p])
FUNCTIONS["knnlm_store_next"] = (c.c_int, [c.c_void_p, c.c_uint64, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_store_tokens"] = (c.c_int, [c.c_void_p, c.c_uint64, c.c_size_t, c.c_void_p])
FUNCTIONS["knnlm_store_keys"] = (c.c_int, [c.c_void_p, c.c_uint64, c.c_size_t, c.c_void_p])
FUNCTIONS["knnlm_store_values"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p])
FUNCTIONS["knnlm_store_text"] = (c.c_int, [c.c_void_p, c.c_uint64, c.c_size_t, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_store_encode"] = (c.c_int, [c.c_void_p, c.c_char_p, c.c_size_t, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_store_decode"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p])


class knnlm_origin(c.Structure):
    _fields_ = [
        ("entry", knnlm_entry),
        ("document", knnlm_document),
        ("before", c.c_void_p),
        ("word", c.c_void_p),
        ("after", c.c_void_p),
        ("before_size", c.c_size_t),
        ("word_size", c.c_size_t),
        ("after_size", c.c_size_t),
    ]


FUNCTIONS["knnlm_store_origin"] = (c.c_int, [c.c_void_p, c.c_uint64, c.c_size_t, c.c_void_p])
FUNCTIONS["knnlm_origin_free"] = (None, [c.c_void_p])


class knnlm_store_settings(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("model", c.c_void_p),
        ("dimension", c.c_int32),
        ("vocabulary", c.c_int32),
        ("keys", c.c_int),
        ("distance", c.c_int),
        ("segment", c.c_uint32),
    ]


FUNCTIONS["knnlm_store_settings_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_writer_create"] = (c.c_int, [c.c_char_p, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_writer_open"] = (c.c_int, [c.c_char_p, c.c_void_p])
FUNCTIONS["knnlm_writer_close"] = (None, [c.c_void_p])
FUNCTIONS["knnlm_writer_begin"] = (c.c_int, [c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_writer_append"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_writer_remove"] = (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p])
FUNCTIONS["knnlm_writer_commit"] = (c.c_int, [c.c_void_p])


class knnlm_index_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("lists", c.c_uint32),
        ("codes", c.c_char_p),
        ("train", c.c_uint64),
        ("probes", c.c_uint32),
        ("iterations", c.c_uint32),
        ("seed", c.c_uint64),
        ("memory", c.c_uint64),
        ("extend", c.c_bool),
        ("force", c.c_bool),
        ("always", c.c_bool),
        ("progress", knnlm_progress),
    ]


class knnlm_index_info(c.Structure):
    _fields_ = [
        ("lists", c.c_uint32),
        ("probes", c.c_uint32),
        ("listed", c.c_uint64),
        ("outside", c.c_uint64),
        ("code_bytes", c.c_uint32),
        ("code_bits", c.c_uint32),
        ("bytes", c.c_uint64),
        ("imbalance", c.c_double),
        ("drift", c.c_double),
    ]


class knnlm_index_result(c.Structure):
    _fields_ = [
        ("done", c.c_bool),
        ("index", knnlm_index_info),
        ("objective", c.c_double),
        ("train_seconds", c.c_double),
        ("assign_seconds", c.c_double),
        ("write_seconds", c.c_double),
        ("seconds", c.c_double),
    ]


FUNCTIONS["knnlm_index_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_index"] = (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_index_update"] = (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_index_options_check"] = (c.c_int, [c.c_void_p])
FUNCTIONS["knnlm_store_index_describe"] = (c.c_int, [c.c_void_p, c.c_void_p])


class knnlm_search_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("k", c.c_size_t),
        ("probes", c.c_uint32),
        ("exact", c.c_bool),
        ("exclude", c.POINTER(c.c_uint64)),
        ("documents", c.POINTER(c.c_uint64)),
        ("document_count", c.c_size_t),
        ("memory", c.c_uint64),
        ("singly", c.c_bool),
        ("progress", knnlm_progress),
        ("only", c.c_void_p),
        ("except", c.c_void_p),
        ("only_count", c.c_size_t),
        ("except_count", c.c_size_t),
    ]


FUNCTIONS["knnlm_search_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_store_search"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_store_knn"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_double, c.c_void_p])
FUNCTIONS["knnlm_store_knn_targets"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p, c.c_double, c.c_void_p])
FUNCTIONS["knnlm_store_knn_of"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_double, c.c_void_p])


class knnlm_recall_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("queries", c.c_size_t),
        ("k", c.c_size_t),
        ("seed", c.c_uint64),
        ("memory", c.c_uint64),
        ("progress", knnlm_progress),
    ]


KNNLM_RECALL_DEPTHS = 4
KNNLM_RECALL_MAX = 32


class knnlm_recall(c.Structure):
    _fields_ = [
        ("probes", c.c_uint32),
        ("recall", c.c_double * KNNLM_RECALL_DEPTHS),
        ("queries_per_second", c.c_double),
    ]


FUNCTIONS["knnlm_recall_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_store_recall"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p])


class knnlm_remove_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("patterns", c.c_void_p),
        ("pattern_count", c.c_size_t),
        ("documents", c.POINTER(c.c_uint64)),
        ("document_count", c.c_size_t),
        ("dry_run", c.c_bool),
        ("removed", c.CFUNCTYPE(None, c.c_void_p, c.c_uint64, c.c_void_p)),
        ("context", c.c_void_p),
    ]


class knnlm_remove_result(c.Structure):
    _fields_ = [
        ("documents", c.c_uint64),
        ("entries", c.c_uint64),
    ]


FUNCTIONS["knnlm_remove_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_store_remove"] = (c.c_int, [c.c_char_p, c.c_void_p, c.c_void_p])


class knnlm_compact_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("force", c.c_bool),
        ("progress", knnlm_progress),
    ]


class knnlm_compact_result(c.Structure):
    _fields_ = [
        ("entries_dropped", c.c_uint64),
        ("documents_dropped", c.c_uint64),
        ("bytes_before", c.c_uint64),
        ("bytes_after", c.c_uint64),
        ("segments_before", c.c_size_t),
        ("segments_after", c.c_size_t),
    ]


FUNCTIONS["knnlm_compact_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_store_compact"] = (c.c_int, [c.c_char_p, c.c_void_p, c.c_void_p])


class knnlm_problem(c.Structure):
    _fields_ = [
        ("file", c.c_char_p),
        ("what", c.c_char_p),
        ("offset", c.c_uint64),
        ("first_entry", c.c_uint64),
        ("entries", c.c_uint64),
        ("first_document", c.c_uint64),
        ("documents", c.c_uint64),
    ]


class knnlm_verify_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("found", c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)),
        ("context", c.c_void_p),
        ("progress", knnlm_progress),
    ]


class knnlm_verify_result(c.Structure):
    _fields_ = [
        ("problems", c.c_size_t),
        ("bytes", c.c_uint64),
        ("entries", c.c_uint64),
        ("documents", c.c_uint64),
        ("damaged_entries", c.c_uint64),
        ("damaged_documents", c.c_uint64),
        ("index_damaged", c.c_bool),
        ("document_damaged", c.POINTER(c.c_bool)),
        ("seconds", c.c_double),
    ]


FUNCTIONS["knnlm_verify_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_store_verify"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_verify_result_free"] = (None, [c.c_void_p])


class knnlm_repair_result(c.Structure):
    _fields_ = [
        ("documents_removed", c.c_uint64),
        ("indexed", c.c_bool),
    ]


FUNCTIONS["knnlm_store_repair"] = (c.c_int, [c.c_char_p, c.c_void_p, c.c_void_p, c.c_void_p])
KNNLM_ARRAY_ANY = 0
KNNLM_ARRAY_F16 = 1
KNNLM_ARRAY_F32 = 2
KNNLM_ARRAY_INT64 = 3
KNNLM_ARRAY_INT32 = 4
KNNLM_ARRAY_INT16 = 5
KNNLM_ARRAY_UINT16 = 6
FUNCTIONS["knnlm_array_read"] = (c.c_int, [c.c_char_p, c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_array_write"] = (c.c_int, [c.c_char_p, c.c_int, c.c_void_p, c.c_size_t, c.c_size_t])


class knnlm_import_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("keys", c.c_char_p),
        ("values", c.c_char_p),
        ("faiss", c.c_char_p),
        ("model", c.c_void_p),
        ("tap", c.c_char_p),
        ("entries", c.c_uint64),
        ("dimension", c.c_int32),
        ("vocabulary", c.c_int32),
        ("key_type", c.c_int),
        ("value_type", c.c_int),
        ("convert", c.c_bool),
        ("keep", c.c_int),
        ("distance", c.c_int),
        ("force", c.c_bool),
        ("progress", knnlm_progress),
    ]


class knnlm_import_result(c.Structure):
    _fields_ = [
        ("keys", c.c_char_p),
        ("values", c.c_char_p),
        ("key_type", c.c_char_p),
        ("value_type", c.c_char_p),
        ("entries", c.c_uint64),
        ("documents", c.c_uint64),
        ("bytes", c.c_uint64),
        ("restored", c.c_bool),
        ("dimension", c.c_int32),
        ("vocabulary", c.c_int32),
        ("kept", c.c_int),
        ("distance", c.c_int),
        ("model", c.c_char_p),
        ("fingerprint", c.c_char_p),
        ("tap", c.c_char_p),
        ("lists", c.c_uint32),
        ("probes", c.c_uint32),
        ("code_parts", c.c_uint32),
        ("code_bits", c.c_uint32),
        ("residuals", c.c_bool),
        ("seconds", c.c_double),
    ]


FUNCTIONS["knnlm_import_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_import"] = (c.c_int, [c.c_char_p, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_import_result_free"] = (None, [c.c_void_p])


class knnlm_export_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("convert", c.c_bool),
        ("keys", c.c_int),
        ("force", c.c_bool),
        ("progress", knnlm_progress),
    ]


class knnlm_export_result(c.Structure):
    _fields_ = [
        ("entries", c.c_uint64),
        ("documents", c.c_uint64),
        ("bytes", c.c_uint64),
        ("left_out", c.c_uint64),
        ("dimension", c.c_int32),
        ("key_type", c.c_char_p),
        ("distance", c.c_int),
        ("lists", c.c_uint32),
        ("probes", c.c_uint32),
        ("code_parts", c.c_uint32),
        ("code_bits", c.c_uint32),
        ("residuals", c.c_bool),
        ("seconds", c.c_double),
    ]


FUNCTIONS["knnlm_export_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_store_export"] = (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_store_export_faiss"] = (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p, c.c_void_p])
KNNLM_TEMPERATURE_MIN = 1e-30
KNNLM_TEMPERATURE_MAX = 1e30
KNNLM_STORES_MAX = 14


class knnlm_mixture_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("stores", c.c_void_p),
        ("store_count", c.c_size_t),
        ("weights", c.POINTER(c.c_double)),
        ("temperatures", c.POINTER(c.c_double)),
        ("ks", c.POINTER(c.c_int64)),
        ("k", c.c_size_t),
        ("probes", c.c_uint32),
        ("lambda", c.c_double),
        ("temperature", c.c_double),
        ("codes", c.c_bool),
        ("exact", c.c_bool),
        ("distance", c.c_int32),
        ("fixed", c.c_bool),
        ("fallback", c.c_bool),
        ("include_self", c.c_bool),
        ("cache", c.c_int64),
        ("cache_lambda", c.c_double),
        ("cache_temperature", c.c_double),
        ("warn", c.CFUNCTYPE(None, c.c_char_p)),
        ("skip_entropy", c.c_double),
        ("memory", c.c_uint64),
        ("bins", c.c_bool),
        ("only", c.c_void_p),
        ("except", c.c_void_p),
        ("only_count", c.c_size_t),
        ("except_count", c.c_size_t),
        ("fraction", c.c_double),
    ]


FUNCTIONS["knnlm_mixture_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_mixture_open"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_mixture_close"] = (None, [c.c_void_p])


class knnlm_mixture_store(c.Structure):
    _fields_ = [
        ("path", c.c_char_p),
        ("entries", c.c_uint64),
        ("lambda", c.c_double),
        ("temperature", c.c_double),
        ("k", c.c_size_t),
        ("probes", c.c_uint32),
        ("codes", c.c_bool),
        ("adaptive", c.c_bool),
        ("gated", c.c_bool),
        ("fallback", c.c_bool),
        ("tuned", c.c_bool),
        ("distance", c.c_int),
    ]


class knnlm_mixture_info(c.Structure):
    _fields_ = [
        ("stores", knnlm_mixture_store * KNNLM_STORES_MAX),
        ("store_count", c.c_size_t),
        ("cache", c.c_size_t),
        ("cache_lambda", c.c_double),
        ("cache_temperature", c.c_double),
        ("split", c.c_int),
    ]


FUNCTIONS["knnlm_mixture_describe"] = (None, [c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_mixture_score"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p, c.c_void_p])


class knnlm_token_row(c.Structure):
    _fields_ = [
        ("document", c.c_char_p),
        ("position", c.c_uint64),
        ("offset", c.c_uint64),
        ("token", c.c_int32),
        ("lm", c.c_double),
        ("knn", c.c_double),
        ("cache", c.c_double),
        ("p", c.c_double),
        ("lambda", c.c_double),
        ("nearest", c.c_double),
        ("entropy", c.c_double),
        ("ngram", c.c_double),
    ]


FUNCTIONS["knnlm_mixture_rows"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p])


class knnlm_next(c.Structure):
    _fields_ = [
        ("lambda", c.c_double),
        ("entropy", c.c_double),
        ("nearest", c.c_double),
    ]


FUNCTIONS["knnlm_mixture_next"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p])


class knnlm_eval_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("split", c.c_int),
        ("split_given", c.c_bool),
        ("score", c.c_int32),
        ("context", c.c_int32),
        ("per_token", c.c_char_p),
        ("report", c.c_char_p),
        ("report_tokens", c.c_uint64),
        ("row", c.CFUNCTYPE(c.c_bool, c.c_void_p, c.c_void_p)),
        ("row_context", c.c_void_p),
        ("progress", knnlm_progress),
        ("texts", c.POINTER(knnlm_input_options)),
        ("ngram", c.c_void_p),
        ("ngram_count", c.c_size_t),
        ("ngram_order", c.c_int32),
        ("ngram_lambda", c.c_double),
    ]


KNNLM_TUNE_CURVE = 101
KNNLM_NGRAM_MAX = 5


class knnlm_score(c.Structure):
    _fields_ = [
        ("nll", c.c_double),
        ("ppl", c.c_double),
        ("ppl_word", c.c_double),
        ("bits_per_byte", c.c_double),
    ]


class knnlm_eval_ngram(c.Structure):
    _fields_ = [
        ("order", c.c_int32),
        ("tokens", c.c_uint64),
        ("grams", c.c_uint64 * KNNLM_NGRAM_MAX),
        ("score", knnlm_score),
        ("lambda", c.c_double),
        ("lambdas", c.c_double * KNNLM_TUNE_CURVE),
        ("by_lambda", c.c_double * KNNLM_TUNE_CURVE),
        ("seconds", c.c_double),
    ]


class knnlm_eval_store(c.Structure):
    _fields_ = [
        ("path", c.c_char * 256),
        ("entries", c.c_uint64),
        ("lambda", c.c_double),
        ("temperature", c.c_double),
        ("k", c.c_size_t),
        ("probes", c.c_uint32),
        ("codes", c.c_bool),
        ("adaptive", c.c_bool),
        ("gated", c.c_bool),
        ("fallback", c.c_bool),
        ("tuned", c.c_bool),
        ("tuned_here", c.c_bool),
        ("distance", c.c_int),
        ("found", c.c_double),
    ]


class knnlm_eval_result(c.Structure):
    _fields_ = [
        ("documents", c.c_uint64),
        ("tokens", c.c_uint64),
        ("words", c.c_uint64),
        ("bytes", c.c_uint64),
        ("own_documents", c.c_uint64),
        ("lm", knnlm_score),
        ("mixed", knnlm_score),
        ("stores", knnlm_eval_store * KNNLM_STORES_MAX),
        ("store_count", c.c_size_t),
        ("cache", c.c_size_t),
        ("cache_lambda", c.c_double),
        ("cache_temperature", c.c_double),
        ("seconds", c.c_double),
        ("seconds_lm", c.c_double),
        ("seconds_search", c.c_double),
        ("tokens_per_second", c.c_double),
        ("stream", c.c_bool),
        ("score", c.c_int32),
        ("context", c.c_int32),
        ("split", c.c_int),
        ("skip_entropy", c.c_double),
        ("skipped", c.c_double),
        ("ngram", knnlm_eval_ngram),
    ]


FUNCTIONS["knnlm_eval_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_eval"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p, c.c_void_p])


class knnlm_tune_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("split", c.c_int),
        ("split_given", c.c_bool),
        ("score", c.c_int32),
        ("context", c.c_int32),
        ("probes", c.POINTER(c.c_int64)),
        ("probe_count", c.c_size_t),
        ("dry_run", c.c_bool),
        ("planned", c.CFUNCTYPE(None, c.c_void_p, c.c_uint64, c.c_uint64)),
        ("planned_context", c.c_void_p),
        ("progress", knnlm_progress),
        ("auto_probes", c.c_bool),
        ("own", c.c_bool),
        ("texts", c.POINTER(knnlm_input_options)),
    ]


class knnlm_tune_point(c.Structure):
    _fields_ = [
        ("store", c.c_size_t),
        ("probes", c.c_uint32),
        ("temperature", c.c_double),
        ("lambda", c.c_double),
        ("cache_lambda", c.c_double),
        ("ppl", c.c_double),
        ("k", c.c_size_t),
    ]


class knnlm_tune_store(c.Structure):
    _fields_ = [
        ("path", c.c_char * 256),
        ("best", knnlm_tune_point),
        ("lambda", c.c_double),
    ]


KNNLM_TUNE_SKIPS = 9


class knnlm_tune_skip(c.Structure):
    _fields_ = [
        ("entropy", c.c_double),
        ("skipped", c.c_double),
        ("ppl", c.c_double),
    ]


class knnlm_tune_result(c.Structure):
    _fields_ = [
        ("tokens", c.c_uint64),
        ("ppl_lm", c.c_double),
        ("ppl", c.c_double),
        ("ppl_cache", c.c_double),
        ("cache_lambda", c.c_double),
        ("cache_temperature", c.c_double),
        ("ppl_adaptive", c.c_double),
        ("ppl_adaptive_checked", c.c_double),
        ("ppl_gate", c.c_double),
        ("ppl_gate_checked", c.c_double),
        ("ppl_foreign", c.c_double),
        ("ppl_foreign_lm", c.c_double),
        ("stores", knnlm_tune_store * KNNLM_STORES_MAX),
        ("store_count", c.c_size_t),
        ("points", c.POINTER(knnlm_tune_point)),
        ("point_count", c.c_size_t),
        ("way_seconds", c.c_double * KNNLM_STORES_MAX),
        ("lambdas", c.c_double * KNNLM_TUNE_CURVE),
        ("by_lambda", c.c_double * KNNLM_TUNE_CURVE),
        ("tuned", knnlm_tuned),
        ("written", c.c_bool),
        ("seconds_search", c.c_double),
        ("seconds_sweep", c.c_double),
        ("seconds", c.c_double),
        ("settings", c.c_size_t),
        ("skips", knnlm_tune_skip * KNNLM_TUNE_SKIPS),
    ]


FUNCTIONS["knnlm_tune_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_tune"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_tune_result_free"] = (None, [c.c_void_p])


class knnlm_neighbor(c.Structure):
    _fields_ = [
        ("store", c.c_size_t),
        ("share", c.c_double),
        ("distance", c.c_double),
        ("origin", knnlm_origin),
    ]


class knnlm_word(c.Structure):
    _fields_ = [
        ("token", c.c_int32),
        ("lm", c.c_double),
        ("knn", c.c_double),
        ("p", c.c_double),
    ]


class knnlm_explain_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("target", c.c_char_p),
        ("words", c.c_size_t),
        ("neighbors", c.c_size_t),
        ("around", c.c_size_t),
    ]


class knnlm_explanation(c.Structure):
    _fields_ = [
        ("tokens", c.c_size_t),
        ("cut", c.c_bool),
        ("target", c.c_int32),
        ("words", c.POINTER(knnlm_word)),
        ("word_count", c.c_size_t),
        ("neighbors", c.POINTER(knnlm_neighbor)),
        ("neighbor_count", c.c_size_t),
        ("lambda", c.c_double),
        ("nearest", c.c_double),
        ("entropy", c.c_double),
        ("targets", c.POINTER(knnlm_word)),
        ("target_count", c.c_size_t),
    ]


FUNCTIONS["knnlm_explain_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_explain"] = (c.c_int, [c.c_void_p, c.c_char_p, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_explanation_free"] = (None, [c.c_void_p])


class knnlm_explain_texts_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("split", c.c_int),
        ("split_given", c.c_bool),
        ("score", c.c_int32),
        ("context", c.c_int32),
        ("best", c.c_size_t),
        ("worst", c.c_size_t),
        ("neighbors", c.c_size_t),
        ("around", c.c_size_t),
        ("progress", knnlm_progress),
        ("texts", c.POINTER(knnlm_input_options)),
    ]


class knnlm_token_gain(c.Structure):
    _fields_ = [
        ("document", c.c_char_p),
        ("before", c.c_void_p),
        ("before_size", c.c_size_t),
        ("position", c.c_uint64),
        ("offset", c.c_uint64),
        ("token", c.c_int32),
        ("lm", c.c_double),
        ("knn", c.c_double),
        ("cache", c.c_double),
        ("p", c.c_double),
        ("lambda", c.c_double),
        ("neighbors", c.POINTER(knnlm_neighbor)),
        ("neighbor_count", c.c_size_t),
    ]


class knnlm_token_gains(c.Structure):
    _fields_ = [
        ("best", c.POINTER(knnlm_token_gain)),
        ("worst", c.POINTER(knnlm_token_gain)),
        ("best_count", c.c_size_t),
        ("worst_count", c.c_size_t),
        ("tokens", c.c_uint64),
        ("ppl_lm", c.c_double),
        ("ppl", c.c_double),
    ]


FUNCTIONS["knnlm_explain_texts_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_explain_texts"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_token_gains_free"] = (None, [c.c_void_p])


class knnlm_text_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("tokens", c.c_size_t),
        ("seed", c.c_uint64),
        ("temperature", c.c_double),
        ("top_k", c.c_int32),
        ("top_p", c.c_double),
        ("min_p", c.c_double),
        ("repeat_penalty", c.c_double),
        ("repeat_last", c.c_size_t),
        ("stops", c.c_void_p),
        ("stop_count", c.c_size_t),
        ("sources", c.c_bool),
        ("around", c.c_size_t),
        ("keep_lambda", c.c_bool),
        ("ignore_end", c.c_bool),
        ("begin_with_space", c.c_bool),
        ("no_carry", c.c_bool),
        ("dry_multiplier", c.c_double),
        ("dry_base", c.c_double),
        ("dry_allowed_length", c.c_size_t),
    ]


FUNCTIONS["knnlm_text_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_text_open"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_text_close"] = (None, [c.c_void_p])
KNNLM_FINISH_NOT = 0
KNNLM_FINISH_LENGTH = 1
KNNLM_FINISH_STOP = 2
FUNCTIONS["knnlm_text_step"] = (c.c_int, [c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_text_read"] = (c.c_char_p, [c.c_void_p, c.c_void_p])


class knnlm_text_info(c.Structure):
    _fields_ = [
        ("finish", c.c_int),
        ("generated", c.c_size_t),
        ("cut", c.c_bool),
        ("seconds_lm", c.c_double),
        ("seconds_search", c.c_double),
        ("seconds_rest", c.c_double),
    ]


FUNCTIONS["knnlm_text_describe"] = (None, [c.c_void_p, c.c_void_p])


class knnlm_text_token(c.Structure):
    _fields_ = [
        ("token", c.c_int32),
        ("p", c.c_double),
        ("lm", c.c_double),
        ("knn", c.c_double),
        ("lambda", c.c_double),
        ("nearest", c.c_double),
        ("entropy", c.c_double),
        ("offset", c.c_size_t),
        ("size", c.c_size_t),
        ("source", c.c_size_t),
    ]


class knnlm_text_source(c.Structure):
    _fields_ = [
        ("store", c.c_char_p),
        ("document", c.c_void_p),
        ("document_size", c.c_size_t),
        ("entry", c.c_uint64),
        ("position", c.c_uint64),
        ("offset", c.c_uint64),
        ("before", c.c_void_p),
        ("text", c.c_void_p),
        ("after", c.c_void_p),
        ("before_size", c.c_size_t),
        ("text_size", c.c_size_t),
        ("after_size", c.c_size_t),
        ("first", c.c_size_t),
        ("tokens", c.c_size_t),
        ("share", c.c_double),
        ("footnote", c.c_size_t),
        ("differ", c.c_size_t),
        ("length", c.c_uint64),
        ("begins", c.c_bool),
        ("ends", c.c_bool),
    ]


FUNCTIONS["knnlm_text_tokens"] = (c.c_size_t, [c.c_void_p])
FUNCTIONS["knnlm_text_sources"] = (c.c_size_t, [c.c_void_p])
FUNCTIONS["knnlm_text_token_at"] = (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p])
FUNCTIONS["knnlm_text_source_at"] = (c.c_int, [c.c_void_p, c.c_size_t, c.c_void_p])
FUNCTIONS["knnlm_text_end"] = (c.c_bool, [c.c_void_p, c.c_void_p])
KNNLM_ALLOWED_HOSTS_MAX = 16


class knnlm_server_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("host", c.c_char_p),
        ("port", c.c_uint16),
        ("api_key", c.c_char_p),
        ("no_key", c.c_bool),
        ("allowed_hosts", c.c_void_p),
        ("allowed_host_count", c.c_size_t),
        ("cors", c.c_char_p),
        ("read_only", c.c_bool),
        ("queue", c.c_size_t),
        ("parallel", c.c_size_t),
        ("max_tokens", c.c_size_t),
        ("max_body", c.c_size_t),
        ("max_memory", c.c_size_t),
        ("connections", c.c_size_t),
        ("per_address", c.c_size_t),
        ("timeout", c.c_double),
        ("patience", c.c_double),
        ("warn", c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_char_p)),
        ("warn_context", c.c_void_p),
        ("models", c.c_size_t),
        ("access_log", c.c_char_p),
        ("access_log_json", c.c_bool),
    ]


FUNCTIONS["knnlm_server_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_server_read_key"] = (c.c_int, [c.c_char_p, c.c_void_p])
FUNCTIONS["knnlm_server_open"] = (c.c_int, [c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_server_url"] = (c.c_char_p, [c.c_void_p])
FUNCTIONS["knnlm_server_load"] = (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p])
FUNCTIONS["knnlm_server_run"] = (c.c_int, [c.c_void_p])
FUNCTIONS["knnlm_server_stop"] = (None, [c.c_void_p])
FUNCTIONS["knnlm_server_set_key"] = (c.c_int, [c.c_void_p, c.c_char_p])
FUNCTIONS["knnlm_server_reopen_log"] = (c.c_int, [c.c_void_p])
FUNCTIONS["knnlm_server_close"] = (None, [c.c_void_p])
KNNLM_TOKENIZER_WORD = 0
KNNLM_TOKENIZER_BPE = 1
KNNLM_TOKENIZER_WORDPIECE = 2
KNNLM_TOKENIZER_SENTENCEPIECE = 3
KNNLM_TOKENIZER_FOREIGN = 4
KNNLM_POSITIONS_SINUSOIDAL = 0
KNNLM_POSITIONS_LEARNED = 1
KNNLM_POSITIONS_ROTARY = 2
KNNLM_ACTIVATION_RELU = 0
KNNLM_ACTIVATION_GELU = 1
KNNLM_ACTIVATION_RELU2 = 2
KNNLM_ACTIVATION_SWIGLU = 3
KNNLM_NORM_LAYER = 0
KNNLM_NORM_RMS = 1
KNNLM_OPTIMIZER_ADAMW = 0
KNNLM_OPTIMIZER_NESTEROV = 1
KNNLM_OPTIMIZER_MUON = 2
KNNLM_SCHEDULE_COSINE = 0
KNNLM_SCHEDULE_LINEAR = 1
KNNLM_SCHEDULE_CONSTANT = 2
KNNLM_SCHEDULE_PLATEAU = 3
KNNLM_SCHEDULE_RESTARTS = 4


class knnlm_train_report(c.Structure):
    _fields_ = [
        ("step", c.c_int64),
        ("steps", c.c_int64),
        ("loss", c.c_double),
        ("rate", c.c_double),
        ("norm", c.c_double),
        ("tokens_per_second", c.c_double),
        ("seconds", c.c_double),
        ("seconds_left", c.c_double),
        ("tokens", c.c_uint64),
        ("valid_loss", c.c_double),
        ("best", c.c_bool),
        ("best_loss", c.c_double),
        ("saved", c.c_bool),
    ]


class knnlm_train_plan(c.Structure):
    _fields_ = [
        ("tokens", c.c_uint64),
        ("parameters", c.c_uint64),
        ("steps", c.c_int64),
        ("batch", c.c_size_t),
        ("kernels", c.c_char_p),
    ]


KNNLM_TYPE_F32 = 0
KNNLM_TYPE_F16 = 1
KNNLM_TYPE_BF16 = 2
KNNLM_TYPE_Q8_0 = 3


class knnlm_train_options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("valid", c.c_char_p),
        ("split", c.c_int),
        ("from", c.c_char_p),
        ("preset", c.c_char_p),
        ("tokenizer", c.c_int32),
        ("tokenizer_file", c.c_char_p),
        ("vocabulary", c.c_int32),
        ("vocabulary_sample", c.c_int64),
        ("width", c.c_int32),
        ("layers", c.c_int32),
        ("heads", c.c_int32),
        ("ffn", c.c_int32),
        ("context", c.c_int32),
        ("window", c.c_int32),
        ("positions", c.c_int32),
        ("activation", c.c_int32),
        ("norm", c.c_int32),
        ("no_bias", c.c_bool),
        ("qk_norm", c.c_bool),
        ("bands", c.POINTER(c.c_int32)),
        ("band_count", c.c_size_t),
        ("steps", c.c_int64),
        ("epochs", c.c_double),
        ("minutes", c.c_double),
        ("length", c.c_int64),
        ("batch", c.c_int64),
        ("micro", c.c_int64),
        ("optimizer", c.c_int),
        ("schedule", c.c_int32),
        ("rate", c.c_double),
        ("floor", c.c_double),
        ("tail", c.c_double),
        ("warmup", c.c_int64),
        ("period", c.c_int64),
        ("clip", c.c_double),
        ("decay", c.c_double),
        ("momentum", c.c_double),
        ("beta1", c.c_double),
        ("beta2", c.c_double),
        ("dropout", c.c_double),
        ("attention_dropout", c.c_double),
        ("activation_dropout", c.c_double),
        ("seed", c.c_uint64),
        ("precision", c.c_int),
        ("type", c.c_int),
        ("valid_every", c.c_int64),
        ("save_every", c.c_int64),
        ("report_every", c.c_int64),
        ("save_seconds", c.c_double),
        ("valid_tokens", c.c_int64),
        ("resume", c.c_bool),
        ("force", c.c_bool),
        ("planned", c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)),
        ("report", c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)),
        ("stop", c.CFUNCTYPE(c.c_bool, c.c_void_p)),
        ("listener", c.c_void_p),
        ("progress", knnlm_progress),
        ("texts", c.POINTER(knnlm_input_options)),
    ]


class knnlm_train_result(c.Structure):
    _fields_ = [
        ("parameters", c.c_uint64),
        ("kernels", c.c_char_p),
        ("last", knnlm_train_report),
    ]


FUNCTIONS["knnlm_train_options_init"] = (None, [c.c_void_p, c.c_size_t])
FUNCTIONS["knnlm_train"] = (c.c_int, [c.c_void_p, c.c_size_t, c.c_char_p, c.c_void_p, c.c_void_p])
