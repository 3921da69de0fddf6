//! The stages of the aggregation language, one row each. Sorted by name, for binary search.

use super::{
    bucket, densify, facet, fill, geo_near, graph, group, join, outside, plain, pushed,
    row::{Needs, Pushed, Reads, RunsOver, Shows, StageRow},
    simple, unpack, unwind, window, write,
};
use crate::{Release, error::QueryError};

const fn row(name: &'static str, parse: super::row::Parse) -> StageRow {
    StageRow::new(name, parse)
}

pub(super) static STAGES: &[StageRow] = &[
    row("$_internalUnpackBucket", unpack::parse)
        .since(Release::V5_0)
        .needs(Needs::Cluster("internal")),
    row("$_unpackBucket", unpack::parse_short).since(Release::V5_0),
    row("$addFields", |spec, cx| plain::add_fields("$addFields", spec, cx)),
    row("$bucket", bucket::parse),
    row("$bucketAuto", bucket::parse_auto),
    StageRow::refused("$changeStream", |_| {
        let text = "Change streams are not supported by Understudy yet; open this one on another member of the set";
        QueryError::new(protocol::ErrorCode::CommandNotSupported, text)
    })
    .bringing_documents()
    .needs(Needs::Changes),
    StageRow::refused("$changeStreamSplitLargeEvent", |name| {
        let text = format!("{name} can only be used in a $changeStream pipeline");
        QueryError::new(protocol::ErrorCode::IllegalOperation, text)
    })
    .since(Release::V7_0),
    StageRow::shown("$collStats", Shows::CollStats, outside::parse_coll_stats)
        .needs(Needs::Collection("collStats")),
    row("$count", group::parse_count),
    StageRow::shown("$currentOp", Shows::CurrentOp, outside::parse_current_op)
        .over(RunsOver::Either)
        .at_home(outside::on_admin)
        .in_facet(true)
        .needs(Needs::ClusterForAllUsers("inprog")),
    row("$densify", densify::parse).since(Release::V6_0),
    row("$documents", simple::parse_documents)
        .since(Release::V6_0)
        .before(simple::no_documents)
        .first()
        .bringing_documents()
        .over(RunsOver::Nothing)
        .in_facet(false),
    row("$facet", facet::parse_facet)
        .inner(facet::check_inner)
        .in_facet(false)
        .reads(Reads::Facets),
    row("$fill", fill::parse).since(Release::V6_0),
    row("$geoNear", geo_near::parse).first().in_facet(false),
    row("$graphLookup", graph::parse).inner(graph::check_from).reads(Reads::Collection(b"from")),
    row("$group", group::parse).pushed(Pushed::Above(|_| true)),
    StageRow::shown("$indexStats", Shows::IndexStats, outside::parse_index_stats)
        .needs(Needs::Collection("indexStats")),
    row("$limit", plain::limit).pushed(Pushed::Below(|_| true)),
    StageRow::shown("$listCatalog", Shows::ListCatalog, outside::parse_list_catalog)
        .since(Release::V6_0)
        .over(RunsOver::Either)
        .at_home(outside::catalog_on_admin)
        .needs(Needs::Catalog),
    StageRow::shown(
        "$listClusterCatalog",
        Shows::ListClusterCatalog,
        outside::parse_list_cluster_catalog,
    )
    .since(Release::V8_1)
    .over(RunsOver::Either)
    .at_home(outside::on_database)
    .needs(Needs::DatabaseCatalog),
    StageRow::shown(
        "$listLocalSessions",
        Shows::ListLocalSessions,
        outside::parse_list_local_sessions,
    )
    .over(RunsOver::Either)
    .at_home(outside::on_no_collection)
    .in_facet(true)
    .needs(Needs::BeingUsers("listSessions")),
    StageRow::shown(
        "$listSampledQueries",
        Shows::ListSampledQueries,
        outside::parse_list_sampled_queries,
    )
    .since(Release::V7_0)
    .over(RunsOver::Either)
    .at_home(outside::on_admin)
    .needs(Needs::Cluster("listSampledQueries")),
    StageRow::refused("$listSearchIndexes", outside::no_search_indexes).since(Release::V7_0),
    StageRow::shown("$listSessions", Shows::ListSessions, outside::parse_list_sessions)
        .at_home(outside::on_sessions)
        .in_facet(true)
        .needs(Needs::BeingUsers("listSessions")),
    row("$lookup", join::parse_lookup)
        .inner(join::check_lookup)
        .reads(Reads::Collection(b"from"))
        .pushed(Pushed::Above(pushed::is_plain_join)),
    row("$match", plain::matching).pushed(Pushed::Below(|_| true)),
    row("$merge", write::parse_merge)
        .last()
        .needs(Needs::Target(Some(b"into"), ["insert", "update"])),
    row("$out", write::parse_out).last().needs(Needs::Target(None, ["insert", "remove"])),
    StageRow::shown("$planCacheStats", Shows::PlanCacheStats, outside::parse_plan_cache_stats)
        .needs(Needs::Collection("planCacheRead")),
    row("$project", plain::project).pushed(Pushed::Below(pushed::is_plain_projection)),
    StageRow::shown("$querySettings", Shows::QuerySettings, outside::parse_query_settings)
        .since(Release::V8_0)
        .over(RunsOver::Nothing)
        .needs(Needs::Cluster("querySettings")),
    StageRow::shown("$queryStats", Shows::QueryStats, outside::parse_query_stats)
        .since(Release::V7_0)
        .over(RunsOver::Either)
        .at_home(outside::on_admin)
        .needs(Needs::Cluster("queryStatsRead")),
    StageRow::refused("$rankFusion", outside::not_supported).since(Release::V8_1),
    row("$redact", simple::parse_redact),
    row("$replaceRoot", simple::parse_replace_root),
    row("$replaceWith", simple::parse_replace_with),
    row("$sample", simple::parse_sample),
    StageRow::refused("$score", outside::not_supported).since(Release::V8_2),
    StageRow::refused("$scoreFusion", outside::not_supported).since(Release::V8_2),
    StageRow::refused("$search", outside::no_search).since(Release::V7_0),
    StageRow::refused("$searchMeta", outside::no_search).since(Release::V7_0),
    row("$set", |spec, cx| plain::add_fields("$set", spec, cx)),
    row("$setWindowFields", window::parse).since(Release::V5_0),
    StageRow::refused("$shardedDataDistribution", |name| {
        let text = format!("The {name} stage can only be run on router");
        QueryError::location(6_789_101, text)
    })
    .since(Release::V6_0),
    row("$skip", plain::skip).pushed(Pushed::Below(|_| true)),
    row("$sort", plain::sort).pushed(Pushed::Below(|_| true)),
    row("$sortByCount", group::parse_sort_by_count),
    row("$unionWith", join::parse_union_with)
        .inner(join::check_union_with)
        .reads(Reads::Collection(b"coll")),
    row("$unset", plain::unset),
    row("$unwind", unwind::parse),
    StageRow::refused("$vectorSearch", outside::no_search).since(Release::V7_0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_by_name() {
        assert!(STAGES.is_sorted_by_key(|row| row.name));
    }

    #[test]
    fn a_release_has_what_came_before_it() {
        let has = |release, name: &[u8]| StageRow::usable(name, release).is_ok();
        assert!(has(Release::V4_4, b"$lookup") && !has(Release::V4_4, b"$setWindowFields"));
        assert!(has(Release::V5_0, b"$setWindowFields") && !has(Release::V5_0, b"$fill"));
        assert!(has(Release::NEWEST, b"$fill"));
    }
}
