//! The scripts in `ops/postgres`: they run, may be run again, and what they schedule works.

use secateur_index::sink::Sink as _;

use crate::chain::{GENESIS, batch, connect, number, open};
use crate::fixture::{self, Server};

const ROLE: &str = include_str!("../../../../ops/postgres/role.sql");
const CRON: &str = include_str!("../../../../ops/postgres/cron.sql");
const UNCRON: &str = include_str!("../../../../ops/postgres/uncron.sql");

/// As much of `pg_cron` as the scripts call; it is not everywhere.
const STAND_IN: &str = "
    create schema cron;
    create table cron.job (jobname text primary key, schedule text, command text);
    create function cron.schedule(name text, at text, command text) returns bigint language sql as
        $$ insert into cron.job values (name, at, command) on conflict (jobname)
           do update set schedule = excluded.schedule, command = excluded.command;
           select 1::bigint $$;
    create function cron.unschedule(name text) returns boolean language sql as
        $$ delete from cron.job where jobname = name returning true $$";

#[tokio::test]
async fn the_jobs_are_scheduled_once_and_what_they_run_works() {
    let server = fixture::shared();
    let url = server.database();
    let database = url.rsplit('/').next().unwrap();
    let sink = open(&url).await;
    sink.commit(batch(0..10)).await.unwrap();
    let client = connect(&url).await;
    client.batch_execute(STAND_IN).await.unwrap();
    let script = CRON.replace("create extension if not exists pg_cron;", "");
    assert_ne!(script, CRON);
    server.script(database, &script);
    server.script(database, &format!("\\set retention_days 30\n{script}"));
    let jobs = client.query("select command from cron.job", &[]).await.unwrap();
    assert_eq!(jobs.len(), 3);
    for job in jobs {
        client.execute(job.get::<_, &str>(0), &[]).await.unwrap();
    }
    let kept = "select count(*) from cron.job where command = 'select secateur_retain_days(30)'";
    assert_eq!(number(&url, kept).await, 1);
    let ranges = "select count(*) from secateur_partitions() where parent = 'logs'";
    assert_eq!(number(&url, ranges).await, 3);
    assert_eq!(number(&url, "select count(*) from blocks").await, 10, "the newest stay");
    server.script(database, UNCRON);
    server.script(database, UNCRON);
    assert_eq!(number(&url, "select count(*) from cron.job").await, 0);
}

#[tokio::test]
async fn the_roles_can_do_what_they_are_for_and_no_more() {
    let server = Server::start();
    // The fixture's own role is the superuser; the script's is named the same, so it is there.
    server.script("postgres", ROLE);
    server.script("postgres", ROLE);
    let url = server.url("secateur");
    let sink = open(&url).await;
    sink.commit(batch(0..10)).await.unwrap();
    sink.maintain(GENESIS).await.unwrap();
    let reader = connect(&url.replace("secateur@", "secateur_reader@")).await;
    let rows = reader.query("select * from blocks", &[]).await.unwrap();
    assert_eq!(rows.len(), 10);
    assert!(reader.execute("delete from blocks", &[]).await.is_err());
    assert!(reader.execute("update meta set value = ''", &[]).await.is_err());
}
