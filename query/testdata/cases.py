"""Cases written by hand: what people write, and what they get wrong."""
import re
from bson import Decimal128, Int64, ObjectId, Timestamp
from bson.binary import Binary
from bson.regex import Regex

FILTERS = [{'$foo':1},{'a':{'$foo':1}},{'a':{'$gt':1,'b':2}},{'a':{'$in':1}},{'a':{'$in':[{'$gt':1}]}},{'a':{'$nin':'x'}},{'$and':1},{'$and':[]},{'$and':[1]},{'$or':[]},{'$or':{}},{'$nor':[]},{'$nor':[3]},
{'a':{'$not':1}},{'a':{'$not':{}}},{'a':{'$not':{'x':1}}},{'a':{'$exists':1}},{'a':{'$exists':'x'}},{'a':{'$exists':{}}},{'a':{'$type':'foo'}},{'a':{'$type':99}},{'a':{'$type':[]}},{'a':{'$type':{}}},{'a':{'$type':-1}},{'a':{'$type':0}},{'a':{'$type':1.5}},{'a':{'$type':True}},{'a':{'$type':['x',1]}},
{'a':{'$mod':1}},{'a':{'$mod':[]}},{'a':{'$mod':[1]}},{'a':{'$mod':[1,2,3]}},{'a':{'$mod':[0,2]}},{'a':{'$mod':['x',2]}},{'a':{'$mod':[2,'x']}},{'a':{'$mod':[float('nan'),1]}},{'a':{'$mod':[1e300,1]}},{'a':{'$mod':[2.5,1.9]}},{'a':{'$mod':[0.5,1]}},{'a':{'$mod':[2,float('inf')]}},
{'a':{'$regex':1}},{'a':{'$regex':'['}},{'a':{'$regex':'a','$options':1}},{'a':{'$regex':'a','$options':'q'}},{'a':{'$options':'i'}},{'a':{'$regex':Regex('a','i'),'$options':'m'}},{'a':{'$options':'m','$regex':Regex('a','i')}},{'a':{'$regex':'a\0b'}},{'a':Regex('[')},{'a':{'$regex':Regex('a','i'),'$options':''}},
{'a':{'$all':1}},{'a':{'$all':[]}},{'a':{'$all':[{'$gt':1}]}},{'a':{'$all':[{'$elemMatch':{'x':1}},3]}},{'a':{'$all':[{'$elemMatch':{'x':1}},{'y':1}]}},{'a':{'$all':[1,{'$elemMatch':{'x':1}}]}},{'a':{'$all':[Regex('a')]}},
{'a':{'$elemMatch':1}},{'a':{'$elemMatch':[]}},{'a':{'$elemMatch':{}}},{'a':{'$elemMatch':{'$where':'x'}}},{'a':{'$elemMatch':{'$gt':1,'x':1}}},{'a':{'$elemMatch':{'x':1,'$gt':1}}},{'a':{'$elemMatch':{'$or':[{'x':1}]}}},{'a':{'$elemMatch':{'$and':[{'x':1}],'$gt':3}}},{'a':{'$elemMatch':{'$foo':1}}},{'a':{'$elemMatch':{'$not':{'$gt':1}}}},
{'a':{'$size':'x'}},{'a':{'$size':-1}},{'a':{'$size':1.5}},{'a':{'$size':2.0}},{'a':{'$size':float('nan')}},{'a':{'$size':1e30}},{'a':{'$size':None}},
{'a':{'$bitsAllSet':'x'}},{'a':{'$bitsAllSet':-1}},{'a':{'$bitsAllSet':1.5}},{'a':{'$bitsAllSet':[-1]}},{'a':{'$bitsAllSet':['x']}},{'a':{'$bitsAllSet':[1.5]}},{'a':{'$bitsAllSet':[2**32]}},{'a':{'$bitsAnyClear':Binary(b'ab')}},{'a':{'$bitsAnySet':[]}},{'a':{'$bitsAnySet':1e300}},{'a':{'$bitsAllSet':{}}},
{'a':{'$eq':1,'$ne':2}},{'a':{'$gt':Regex('a')}},{'a':{'$ne':Regex('a')}},{'a':{'$eq':Regex('a')}},{'a':{'$in':[Regex('[')]}},{'a':{'$lt':{'$gt':1}}},{'a':{'$not':Regex('a')}},{'a':{'$not':Regex('[')}},{'a':{'$not':{'$regex':'a'}}},{'a':{'$not':{'$not':{'$gt':1}}}},
{'$comment':1},{'a':{'$comment':'x'}},{'$where':'1'},{'$where':1},{'$text':{'$search':'a'}},{'$text':1},{'$expr':1},{'$expr':{'$function':{'body':'f','args':[],'lang':'js'}}},{'$sampleRate':2},{'$sampleRate':'x'},{'$sampleRate':0.0},{'$sampleRate':1.0},{'$alwaysTrue':1},{'$alwaysTrue':2},{'$alwaysFalse':1},{'$alwaysFalse':'x'},{'$jsonSchema':1},{'$rand':{}},
{'a':{'$near':[1,1]}},{'a':{'$geoWithin':1}},{'a':{'$geoIntersects':{}}},{'a':{'$within':{}}},{'a':{'$nearSphere':1}},{'a':{'$geoNear':1}},
{'':1},{'a.':1},{'.a':1},{'a..b':1},{'$a.b':1},{'a':{'$ref':'x','$id':1}},{'a':{'$id':1}},{'a':{'$ref':'x'}},{'a':{'$db':1}},{'a':{'$eq':{'$ref':'x'}}},{'$ref':1},{'a':{'$_internalExprEq':1}},{'a':{'$expr':1}},{'a':{'$and':[]}},{'a':{'$or':[{'x':1}]}},{'a':{'$gt':None}},{'a':{'$gt':[1]}}, {'a':{'$eq':[]}},
{'$or':[{'$foo':1}]},{'$and':[{}]},{'$or':[{}]},{'$nor':[{}]},{'a':{'$jsonSchema':{}}},{'a':{'$text':1}},{'a':{'$where':1}},{'a':{'$minDistance':1}},{'a':{'$maxDistance':1}},{'a':{'$in':[]}},{'a':{'$nin':[]}},{'a':{}},{'a':{'$':1}},{'$':1},{'$eq':1},{'$gt':1},{'$not':{'a':1}},{'$in':[1]},
]
# What we refuse on purpose or can't do yet is left out.
FILTERS = [q for q in FILTERS if not re.search(r"\$(where|near|geo|within|text|_internal|function|expr|jsonSchema)", repr(q), re.I)]
