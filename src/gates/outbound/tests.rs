//! What the outbound policy dials and refuses.

use super::*;

const OPEN: OutboundPolicy = OutboundPolicy { http: true, private: true, docker_host: false };
const CLOSED: OutboundPolicy = OutboundPolicy { http: false, private: false, docker_host: false };
const DOCKER: OutboundPolicy = OutboundPolicy { docker_host: true, ..OPEN };

fn problems(policy: OutboundPolicy, url: &str) -> String {
    policy.check_url(url).map_or_else(|problems| problems.join("; "), |()| String::new())
}

#[test]
fn private_addresses_are_a_setting_and_link_local_and_metadata_are_not() {
    for private in ["127.0.0.1", "10.0.0.1", "::1", "fd00::1", "0.0.0.0", "100.64.0.1", "192.0.2.1"] {
        let address = private.parse().unwrap();
        assert!(OPEN.check(address).is_ok() && CLOSED.check(address).is_err(), "{private}");
    }
    for never in ["169.254.169.254", "169.254.0.1", "fe80::1", "::ffff:169.254.169.254", "100.100.100.200"] {
        let address = never.parse().unwrap();
        assert!(OPEN.check(address).is_err() && CLOSED.check(address).is_err(), "{never}");
    }
    assert!(CLOSED.check("8.8.8.8".parse().unwrap()).is_ok());
}

#[test]
fn a_url_is_http_or_https_with_a_host_and_without_credentials_or_fragment() {
    for good in ["http://127.0.0.1:9/a?b=c", "https://example.test", "HTTP://[::1]:1/", "http://a.b.c/%20"] {
        assert_eq!(problems(OPEN, good), "", "{good}");
    }
    for (bad, why) in [
        ("", "must be a URL"),
        ("/a", "must be a URL"),
        ("http://", "must be a URL"),
        ("ftp://a.test/", "http or https"),
        ("file:///etc/passwd", "http or https"),
        ("http://u@a.test/", "credentials"),
        ("http://:p@a.test/", "credentials"),
        ("http://a.test/#x", "fragment"),
        ("http://169.254.169.254/latest", "metadata address"),
        ("http://[::ffff:a9fe:a9fe]/", "metadata address"),
        ("http://2852039166/", "metadata address"),
        ("http://0xa9.254.43518/", "metadata address"),
    ] {
        assert!(problems(OPEN, bad).contains(why), "{bad}: {}", problems(OPEN, bad));
    }
    assert!(problems(OPEN, &format!("http://a.test/{}", "x".repeat(URL_CHARS))).contains("at most 2048"));
    assert!(problems(CLOSED, "http://a.test/").contains("must be https"));
    assert!(problems(CLOSED, "https://2130706433/").contains("private address"));
    assert_eq!(problems(CLOSED, "https://a.test/"), "");
    // All problems at once, and nothing of the URL's own.
    let said = problems(CLOSED, "http://user:secret@10.0.0.1/#x");
    assert_eq!(said.split("; ").count(), 4, "{said}");
    assert!(!said.contains("secret"));
}

#[test]
fn loopback_may_mean_the_machine_that_runs_the_container() {
    let route = |policy: OutboundPolicy, url: &str| {
        let (url, host) = policy.route(Url::parse(url).unwrap()).unwrap();
        (url.to_string(), host)
    };
    assert_eq!(route(OPEN, "http://127.0.0.1:9/a"), ("http://127.0.0.1:9/a".to_owned(), None));
    let renamed = ("http://localhost:9/a".to_owned(), Some("127.0.0.1:9".to_owned()));
    assert_eq!(route(DOCKER, "http://127.0.0.1:9/a"), renamed);
    let renamed = ("https://localhost/".to_owned(), Some("[::1]".to_owned()));
    assert_eq!(route(DOCKER, "https://[::1]/"), renamed);
    // A name goes through the resolver as it is.
    assert_eq!(route(DOCKER, "http://localhost:9/"), ("http://localhost:9/".to_owned(), None));
    assert_eq!(route(DOCKER, "http://127.0.0.2/"), ("http://127.0.0.2/".to_owned(), None));
    assert!(DOCKER.route(Url::parse("http://169.254.1.1/").unwrap()).is_err());
}

async fn resolved(
    policy: OutboundPolicy,
    name: &str,
    answers: &'static [&'static str],
) -> Result<String, String> {
    let lookup = move |asked: String| -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            if asked == DOCKER_HOST {
                return Ok(vec!["192.168.65.254".parse().unwrap()]);
            }
            if answers.is_empty() {
                return Err(io::Error::other("no such name"));
            }
            Ok(answers.iter().map(|text| text.parse().unwrap()).collect())
        })
    };
    let gate = Gate { policy, lookup: Arc::new(lookup) };
    match gate.resolve(name.parse().unwrap()).await {
        Ok(found) => Ok(found.map(|address| address.ip().to_string()).collect::<Vec<_>>().join(" ")),
        Err(error) if error.is::<AddressRefused>() => Err(format!("refused: {error}")),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn of_the_answers_for_a_name_only_allowed_ones_are_dialled() {
    let mixed = &["169.254.169.254", "8.8.8.8", "10.0.0.1"];
    assert_eq!(resolved(CLOSED, "a.test", mixed).await.unwrap(), "8.8.8.8");
    assert_eq!(resolved(OPEN, "a.test", mixed).await.unwrap(), "8.8.8.8 10.0.0.1");
    let none = resolved(CLOSED, "a.test", &["10.0.0.1", "::1"]).await.unwrap_err();
    assert!(none.starts_with("refused: ::1 is a private address"), "{none}");
    let never = resolved(OPEN, "metadata.test", &["169.254.169.254"]).await.unwrap_err();
    assert!(never.starts_with("refused: 169.254.169.254 is a metadata address"), "{never}");
    assert!(resolved(OPEN, "a.test", &[]).await.unwrap_err().contains("no such name"));
    assert_eq!(resolved(DOCKER, "localhost", &["127.0.0.1"]).await.unwrap(), "192.168.65.254");
    assert_eq!(resolved(OPEN, "localhost", &["127.0.0.1"]).await.unwrap(), "127.0.0.1");
}
