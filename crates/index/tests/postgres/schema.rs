//! The schema: what is noted of its versions, where it lives, and whose it is.

use secateur_index::ErrorClass;
use secateur_index::postgres::{Address, PostgresOptions, PostgresSink};
use secateur_index::sink::{Identity, IndexReader as _, Sink as _};

use crate::chain::{connect, fresh, number, open};
use crate::fixture;

fn identity(chain_id: u64) -> Identity {
    Identity { chain_id, codec: "evm".into(), logs: "off".into() }
}

#[tokio::test]
async fn what_is_noted_of_the_versions_is_what_earlier_programs_noted() {
    let (sink, url) = fresh().await;
    let sql = "select version, name, encode(sha256, 'hex') from schema_migrations order by version";
    let rows = connect(&url).await.query(sql, &[]).await.unwrap();
    let rows: Vec<(i64, String, String)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    let wanted = [
        (1, "0001_tables", "40430709b743650f16753dcf5baf96537b55560c0cd0f85d7f347ea303db68c8"),
        (2, "0002_functions", "29eb122fad53c5736a88be83c723e39adaf04dceda548515e17a7a1eab7f16f9"),
        (3, "0003_status", "26b9dc602a63d4a40ea9d772ff7172393ce1853887671f22b4bff2904bcee368"),
        (4, "0004_kept_from", "ae8b631db82cc0863a202cc4aeaf199ef10db727c1bde8cd42d711c7e8f37b01"),
    ];
    assert_eq!(rows, wanted.map(|(version, name, sum)| (version, name.into(), sum.into())));
    assert_eq!(sink.meta().await.unwrap().schema_version, 4);
    assert_eq!(open(&url).await.cursor().await.unwrap(), None);
}

#[tokio::test]
async fn an_index_that_is_not_up_to_date_is_refused_to_readers() {
    let address = Address::parse(&fixture::database()).unwrap();
    let reader = PostgresSink::open_existing(&address, PostgresOptions::default()).await;
    let error = reader.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused);
    assert!(error.to_string().contains("start the worker"), "{error}");
}

#[tokio::test]
async fn an_index_lives_wholly_in_the_schema_that_it_is_given() {
    let url = fixture::database();
    connect(&url).await.batch_execute("create schema aside").await.unwrap();
    let aside = format!("{url}?options=-csearch_path%3Daside");
    let sink = open(&aside).await;
    sink.commit(crate::chain::batch(0..5)).await.unwrap();
    // The functions keep to it too, whoever calls them.
    connect(&url).await.execute("select aside.secateur_make_ahead(3)", &[]).await.unwrap();
    let sql = "select count(*) from pg_class where relnamespace = 'public'::regnamespace";
    assert_eq!(number(&url, sql).await, 0);
    assert_eq!(number(&url, "select count(*) from aside.blocks").await, 5);
}

#[tokio::test]
async fn an_index_of_another_chain_is_refused() {
    let (sink, _) = fresh().await;
    sink.bind(&identity(5)).await.unwrap();
    sink.bind(&identity(5)).await.unwrap();
    let error = sink.bind(&identity(6)).await.unwrap_err();
    assert!(error.to_string().contains("chain 5"), "{error}");
    let other = Identity { codec: "opaque".into(), ..identity(5) };
    assert!(sink.bind(&other).await.is_err());
    let logs = Identity { logs: "all".into(), ..identity(5) };
    sink.bind(&logs).await.unwrap();
    let meta = sink.meta().await.unwrap();
    assert_eq!((meta.chain_id, meta.logs.as_deref()), (Some(5), Some("all")));
}
