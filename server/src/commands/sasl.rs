//! saslStart and saslContinue, and the part of a login within hello.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bson::{Binary, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, raw::cstr, rawdoc};
use protocol::{
    ErrorCode, Fields,
    fields::{Value, type_name},
    scram::Mechanism,
};

use super::{Api, Auth, Command, Run, Waiting, authenticate};
use crate::{
    auth::{
        login::{CONVERSATION_ID, First, Sent},
        user::UserName,
    },
    context::{Call, Outcome},
    dispatch::is_database,
    error::Failure,
    read::blocking,
};

pub(super) const SASL_START: Command = Command {
    name: "saslStart",
    help: "Begins an authentication.",
    auth: Auth::None,
    fields: super::Fields::Only(&["mechanism", "payload", "autoAuthorize", "options"]),
    api: Api::V1,
    by_op_query: true,
    run: Run::Waiting(|call| {
        attempt(call, |call| start(call, &call.body, &call.db, false).map(Into::into))
    }),
    ..Command::DEFAULT
};

pub(super) const SASL_CONTINUE: Command = Command {
    name: "saslContinue",
    help: "Goes on with an authentication.",
    auth: Auth::None,
    fields: super::Fields::Only(&["conversationId", "payload"]),
    api: Api::V1,
    by_op_query: true,
    run: Run::Waiting(|call| attempt(call, go_on)),
    ..Command::DEFAULT
};

/// Processes one step of a login when it is its turn. The reply to a failed one may be delayed, to slow down
/// guessing.
fn attempt(call: Call, step: fn(&Call) -> Outcome) -> Waiting {
    Box::pin(async move {
        let outcome = in_turn(&call, step).await;
        if outcome.is_err() {
            tokio::time::sleep(call.node().parameters.auth_failed_delay()).await;
        }
        outcome
    })
}

async fn in_turn<T: Send + 'static>(
    call: &Call,
    step: fn(&Call) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let turn = call.node().auth.turn().await;
    let inner = call.clone();
    blocking::run(call, move || {
        // Held until the work is done, even if the client disconnects meanwhile.
        let _turn = turn;
        step(&inner)
    })
    .await
}

fn start(
    call: &Call,
    body: &RawDocument,
    db: &str,
    speculative: bool,
) -> Result<RawDocumentBuf, Failure> {
    let fields = Fields::idl("saslStart", body);
    let mechanism = fields.required("mechanism")?.str()?;
    let payload = Payload::parse(fields.required("payload")?)?;
    let skip_empty = match fields.optional("options")? {
        Some(options) => {
            let skip = options.fields()?.optional("skipEmptyExchange")?;
            skip.map_or(Ok(false), |flag| flag.safe_bool())?
        }
        None => false,
    };
    let first = First { db, mechanism, payload: &payload.bytes, skip_empty, speculative };
    let sent = call.client.login.begin(&call.client, &first)?;
    Ok(payload.reply(sent))
}

fn go_on(call: &Call) -> Outcome {
    let fields = Fields::idl("saslContinue", &call.body);
    let id = fields.required("conversationId")?.safe_i32()?;
    let payload = Payload::parse(fields.required("payload")?)?;
    let sent = call.client.login.go_on(&call.client, id, &call.db, &payload.bytes)?;
    Ok(payload.reply(sent).into())
}

/// A message as bytes or as Base64; the reply has the same form.
struct Payload {
    bytes: Vec<u8>,
    as_text: bool,
}

impl Payload {
    fn parse(value: Value<'_>) -> Result<Self, Failure> {
        match value.raw() {
            RawBsonRef::Binary(binary) => Ok(Self { bytes: binary.bytes.to_vec(), as_text: false }),
            RawBsonRef::String(text) => {
                let bytes = BASE64.decode(text).map_err(|_| Failure::authentication_failed())?;
                Ok(Self { bytes, as_text: true })
            }
            other => {
                let text = format!(
                    "Invalid SASLPayload type. Expected Base64 or BinData, got: {}",
                    type_name(&other)
                );
                Err(Failure::said(ErrorCode::BadValue, text))
            }
        }
    }

    fn reply(&self, sent: Sent) -> RawDocumentBuf {
        let mut reply = rawdoc! { "conversationId": CONVERSATION_ID, "done": sent.done };
        if self.as_text {
            reply.append(cstr!("payload"), BASE64.encode(sent.payload));
        } else {
            let subtype = bson::spec::BinarySubtype::Generic;
            reply.append(cstr!("payload"), Binary { subtype, bytes: sent.payload });
        }
        reply
    }
}

/// The part of a login within a hello.
pub(super) async fn of_hello(call: &Call) -> Result<RawDocumentBuf, Failure> {
    let asks = ["saslSupportedMechs", "speculativeAuthenticate"]
        .iter()
        .any(|name| matches!(call.body.get(name), Ok(Some(_))));
    if asks { in_turn(call, of_login).await } else { Ok(RawDocumentBuf::new()) }
}

fn of_login(call: &Call) -> Result<RawDocumentBuf, Failure> {
    let fields = Fields::idl(&call.name, &call.body);
    let mut body = RawDocumentBuf::new();
    if let Some(of) = fields.optional("saslSupportedMechs")? {
        append_mechanisms(call, of.str()?, &mut body)?;
    }
    let Some(login) = fields.optional("speculativeAuthenticate")? else { return Ok(body) };
    let login = login.document()?;
    let Some(Ok((command, _))) = login.iter().next() else { return Ok(body) };
    let db = login.get_str("db").unwrap_or_default();
    let begun = match command.as_str() {
        "saslStart" | "authenticate" if !is_database(db) => return Ok(body),
        "saslStart" => start(call, login, db, true),
        "authenticate" => authenticate::log_in(call, login, db, true),
        other => {
            let text = format!("{}.speculativeAuthenticate unknown command: {other}", call.name);
            return Err(Failure::said(ErrorCode::from_code(51769), text));
        }
    };
    // A failed speculative attempt is ignored: the client then starts a regular login.
    if let Ok(begun) = begun {
        body.append(cstr!("speculativeAuthenticate"), begun);
    }
    Ok(body)
}

fn append_mechanisms(call: &Call, of: &str, body: &mut RawDocumentBuf) -> Result<(), Failure> {
    let profile = call.profile();
    let Some((db, user)) = of.split_once('.') else {
        let name = if profile.login_comes_first { "UserName" } else { "username" };
        let text = format!("{name} must contain a '.' separated database.user pair");
        return Err(Failure::said(ErrorCode::BadValue, text));
    };
    let name = UserName::new(user, db);
    let Some(user) = call.node().auth.find(call.node(), &name)? else { return Ok(()) };
    // Strongest first; 4.4 has the opposite order.
    let order = if profile.strongest_mechanism_first {
        [Mechanism::ScramSha256, Mechanism::ScramSha1]
    } else {
        [Mechanism::ScramSha1, Mechanism::ScramSha256]
    };
    let has = |of: &Mechanism| user.credentials.iter().any(|own| own.mechanism == *of);
    let names: RawArrayBuf = order.into_iter().filter(has).map(Mechanism::name).collect();
    body.append(cstr!("saslSupportedMechs"), names);
    Ok(())
}
