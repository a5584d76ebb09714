// SPDX-License-Identifier: Apache-2.0
//! Clouds as people configure them: files, secrets beside them, variables, and what is missing.

use std::collections::BTreeMap;

use cobaltcore_openstack::{
    ApplicationCredentialRef, CloudConfig, ConfigError, Credentials, DomainRef, Interface, Scope, Secret,
    Service, UserRef,
};

fn from(variables: &[(&str, &str)]) -> Result<CloudConfig, ConfigError> {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    CloudConfig::from_variables(|name| variables.get(name).map(|value| (*value).to_owned()))
}

const CLOUDS: &str = "
clouds:
  lab:
    auth:
      auth_url: https://keystone.example:5000/v3
      username: operator
      user_domain_name: Default
      project_name: admin
      project_domain_id: default
    region_name: one
    interface: internal
    cacert: /etc/ssl/lab.pem
    compute_endpoint_override: https://nova.example/v2.1
  app:
    auth_type: v3applicationcredential
    auth:
      auth_url: https://keystone.example:5000/v3
      application_credential_id: '77'
      application_credential_secret: 12345
    verify: false
";

#[test]
fn a_file_and_its_secrets_make_a_cloud() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clouds.yaml");
    std::fs::write(&file, CLOUDS).unwrap();
    let secrets = "clouds: {lab: {auth: {password: from-secure}}}";
    std::fs::write(folder.path().join("secure.yaml"), secrets).unwrap();

    let lab = CloudConfig::from_file(&file, "lab").unwrap();
    let domain = DomainRef::Name("Default".to_owned());
    let user = UserRef::Name {
        name: "operator".to_owned(),
        domain,
    };
    assert_eq!(
        lab.credentials,
        Credentials::Password {
            user,
            password: Secret::new("from-secure")
        }
    );
    let project = Scope::Project {
        name: "admin".to_owned(),
        domain: DomainRef::Id("default".to_owned()),
    };
    assert_eq!(lab.scope, project);
    assert_eq!(
        (lab.region.as_deref(), lab.interface),
        (Some("one"), Interface::Internal)
    );
    assert_eq!(lab.tls.ca_file.as_deref(), Some("/etc/ssl/lab.pem".as_ref()));
    assert!(lab.endpoint_overrides.contains_key(&Service::Nova));

    // the same by variables; a secret of digits is a number to YAML
    let path = file.to_str().unwrap();
    let app = from(&[("OS_CLOUD", "app"), ("OS_CLIENT_CONFIG_FILE", path)]).unwrap();
    assert_eq!(
        app.credentials,
        Credentials::ApplicationCredential {
            credential: ApplicationCredentialRef::Id("77".to_owned()),
            secret: Secret::new("12345")
        }
    );
    assert_eq!(app.scope, Scope::Inherent);
    assert!(app.tls.insecure);

    let missing = CloudConfig::from_file(&file, "nowhere").unwrap_err().to_string();
    assert!(
        missing.contains("clouds.nowhere") && missing.contains(path),
        "{missing}"
    );
    std::fs::write(&file, "clouds: [").unwrap();
    let broken = CloudConfig::from_file(&file, "lab").unwrap_err().to_string();
    assert!(broken.contains(path), "{broken}");
}

#[test]
fn what_is_missing_is_named_as_people_write_it() {
    let url = ("OS_AUTH_URL", "http://k/v3");
    let user = ("OS_USERNAME", "u");
    let domain = ("OS_USER_DOMAIN_NAME", "Default");
    let cases: [(&[(&str, &str)], &str); 7] = [
        (&[], "OS_AUTH_URL"),
        (&[url], "OS_USERNAME"),
        (&[url, user], "OS_USER_DOMAIN_NAME"),
        (&[url, user, domain], "OS_PASSWORD"),
        (
            &[url, ("OS_APPLICATION_CREDENTIAL_ID", "a")],
            "OS_APPLICATION_CREDENTIAL_SECRET",
        ),
        (&[("OS_AUTH_URL", "keystone"), user], "OS_AUTH_URL"),
        (&[url, user, domain, ("OS_INTERFACE", "sideways")], "OS_INTERFACE"),
    ];
    for (variables, name) in cases {
        let text = from(variables).unwrap_err().to_string();
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn a_command_may_hold_the_password() {
    let with = |command| {
        from(&[
            ("OS_AUTH_URL", "http://k/v3"),
            ("OS_USERNAME", "u"),
            ("OS_USER_DOMAIN_ID", "default"),
            ("OS_PW_CMD", command),
        ])
    };
    let cloud = with("printf 'two words\\n\\n'").unwrap();
    assert!(
        matches!(&cloud.credentials, Credentials::Password { password, .. } if *password == Secret::new("two words\n")),
        "one line end is taken away"
    );
    assert!(matches!(with("exit 3"), Err(ConfigError::PasswordCommand(_))));
    assert!(matches!(with("true"), Err(ConfigError::PasswordCommand(_))));
}
